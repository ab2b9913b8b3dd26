"""The service: a bundle behind HTTP, one front end process and workers with a model each. No code of searching.

    client ─ /predict ─► app ─ requests ─ samples ─► batcher ═ one batch ═► worker (LitServe process) ─► Session
                          ▲                                                   │
                          └──────────────── answers ◄═════ one message ═══════┘

The front end validates, tokenizes and queues each row in the bin of its length; a free worker gets one whole batch over
a socket of its own. `lifecycle` starts and drains; `lit` is all that reaches into LitServe.
"""
