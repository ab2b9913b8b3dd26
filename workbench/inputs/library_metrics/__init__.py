"""Metrics of well-kept libraries, by name: `metric: {name: wer, …}`.

Each is a function as a user would write it, in a file beside this one, and runs in a process of its own as theirs do
(`inputs.user_code`); so a library is loaded only where its metric is asked for, and its version enters the keys.
"""

from workbench.inputs.library_metrics.table import NAMED, NamedMetric, refuse_missing

__all__ = ["NAMED", "NamedMetric", "refuse_missing"]
