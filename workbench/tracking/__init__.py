"""MLflow: one experiment per experiment file, one flat run per candidate, one summary run per sweep.

MLflow is a window on the sweep, not its memory: everything here can be written again from the journal. So a store
that cannot be used is refused before any work, and one that fails later is caught up with at the end. Runs are found
again by their tags (sweep, candidate), so the same sweep run twice writes each run once.

    mlruns/mlflow.db            SQLite, in WAL mode: a third of the time per run, and the UI reads while a sweep writes
    mlruns/artifacts/<run>/     candidate.json, evaluation.json, record.json, log.txt; models of the front; bundles

Where MLFLOW_TRACKING_URI names a server, all of it goes there instead (`server`), and one that fails is no reason to
stop a sweep: it is caught up with when it answers again, at the end, or by `workbench log`.

`store` keeps the database sound, `run` says what a run holds, `tracker` writes it, `versions` is the Model Registry,
`links` leads into the UI.
"""

from workbench.tracking.links import links_of, ui_command
from workbench.tracking.server import Place, place_of
from workbench.tracking.tracker import ModelFiles, Tracker, open_tracker

__all__ = [
    "ModelFiles",
    "Place",
    "Tracker",
    "links_of",
    "open_tracker",
    "place_of",
    "ui_command",
]
