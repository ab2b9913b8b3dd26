"""Datasets: a manifest read strictly, and splits streamed as batches of feeds and targets.

    dataset = read_manifest(path, model)
    check_inputs(dataset, model)
    for batch in dataset.batches("validation", 16): ...

A package because three kinds of rows (text, arrays, a user's loader) are three stories behind one small protocol.
"""

from workbench.inputs.dataset.batch import NOT_SCORED, Batch, Task
from workbench.inputs.dataset.interface_reader import read_interface
from workbench.inputs.dataset.manifest import read_manifest
from workbench.inputs.dataset.splits import Dataset, check_inputs
from workbench.inputs.dataset.text import read_column

__all__ = [
    "NOT_SCORED",
    "Batch",
    "Dataset",
    "Task",
    "check_inputs",
    "read_column",
    "read_interface",
    "read_manifest",
]
