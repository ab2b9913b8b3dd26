"""One observing pass serves every recipe that can be derived from it."""

from tests.evaluation.workplace import SAMPLES, Workplace


def test_recipes_that_need_one_pass_share_it(work: Workplace) -> None:
    first = work.samples_read(work.record)

    later = work.samples_read(
        lambda: [
            work.record(algorithm="kl"),
            work.record(algorithm="percentile", percentile=99.9),
            work.record(algorithm="ifmr", activation_symmetric=True),
            work.record(algorithm="hfmg", weight_algorithm="arq", weight_granularity="tensor"),
            work.record(algorithm="mse", weight_algorithm="mse", attention_matmul=False),
        ]
    )

    assert (first, later) == (SAMPLES, 0)
    assert work.entries("statistics") == 1
    assert work.entries("record") == 0


def test_recipes_with_equal_balance_factors_share_a_pass_of_their_own(work: Workplace) -> None:
    work.record()

    halved = work.samples_read(lambda: [work.record(algorithm=a, balance=0.5) for a in ("mse", "kl", "ifmr")])
    other = work.samples_read(lambda: work.record(algorithm="mse", balance=0.75))

    assert (halved, other) == (SAMPLES, SAMPLES)
    assert work.entries("statistics") == 3
