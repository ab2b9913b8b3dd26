"""How far the answers of what ships lie from those of other ways to compute the same model, over the same samples.

    ways      who answers: the checkpoint, float32 on the host, float models as the target compiles them, what ships;
              and how a service forms batches of samples
    compared  one pass over the samples: figures of each pair of ways
    measure   an agreement of a candidate, of a bundle, or of sessions that are open anyway

What comes of it is `values.agreement.Agreements`; nothing here judges it (`shipping.acceptance` does).
"""
