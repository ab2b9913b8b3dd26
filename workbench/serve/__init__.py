"""The service: a bundle behind HTTP, front ends, and workers with a model each. No code of searching.

    client ─ /predict ─► app ─ requests ─ samples ─► dispatch ═ one batch ═► worker (a process) ─► Session
                          ▲                             │                       │
                          └───────── answers ◄──────────┴═════ one message ═════┘

A front end validates and tokenizes, and queues each row in the bin of its length; a free worker gets one whole batch
over a socket of its own. One front end is in the process that has the queues. Several are processes of their own
(`front_end`), given connections and relieved of their rows by the one that has them (`front_ends`), so that all share
queues, workers and cards. `pool` keeps processes of either kind running; `lifecycle` starts and drains.
"""
