"""Interpreters for the AMCT driver: the emulator's amct_onnx, and broken ones that do what amct.md §12 tells of."""

import os
import sys
from pathlib import Path

from workbench.cann_emulator.tree import search_paths, write_tree

ROOT = Path(__file__).parents[3]


def emulator_variables(root: Path) -> dict[str, str]:
    """As `eval "$(workbench emulator env)"` leaves the environment, with this interpreter named for AMCT."""
    tree = write_tree(root)
    modules = [*map(str, search_paths(tree)["PYTHONPATH"]), str(ROOT)]
    return {
        **_plain(),
        "PYTHONPATH": os.pathsep.join(modules),
        "WORKBENCH_AMCT_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }


def broken_variables(folder: Path, source: str) -> dict[str, str]:
    """This interpreter with another `amct_onnx`, whose module is `source`."""
    (folder / "amct_onnx").mkdir(parents=True)
    (folder / "amct_onnx" / "__init__.py").write_text(source, encoding="utf-8")
    return {**_plain(), "PYTHONPATH": str(folder), "WORKBENCH_AMCT_PYTHON": sys.executable}


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WORKBENCH_"))}


WORKING = """
import json, os, signal, sys, time
AMCT_SO = object()
__version__ = "8.5.0"
def create_quant_config(config_file, model_file, config_defination):
    open(config_file, "w").write(json.dumps({"batch_num": 1}))
"""
"""The beginning of an amct_onnx that imports, and fails later."""
