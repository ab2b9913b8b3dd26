"""Imports go down only. This table is the architecture; ARCHITECTURE.md points here."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "workbench"

LAYERS: dict[str, tuple[str, ...]] = {
    "values": (
        *("errors", "canonical", "source_closure", "files", "input_files", "lifeline", "scratch", "exit_codes"),
        "json_reader",
        *("ascend_settings", "service", "candidate", "model", "results", "objectives"),
    ),
    "numerics": (
        *("yaml_nodes", "yaml_reader"),
        "service_reader",
        "experiment",
        "dimensions",
        *("bin_words", "space", "space_lengths", "space_reader"),
        *("onnx_tensors", "onnx_bounds", "graph", "model_door", "model_opener"),
        "quantizable",
        "grouping",
        "preprocess",
        "dataset",
        "metrics",
        "significance",
        "export",
        "quantization",
        "example",
    ),
    "targets": ("targets",),
    "evaluation": (
        "store",
        "measure",
        "noise",
        "replay",
        "memory",
        "device",
        "profiling",
        *("sealed_json", "journal_entries", "journal"),
        "vendor_calibration",
        "shared_shapes",
        "artifacts",
        "plan",
        "padding_check",
        "accuracy_pass",
        "evaluate",
        *("signing", "bundle"),
        "handover",
        "inspection",
        "model_data",
        "calibration",
        "tensor_flow",
        "differences",
        "comparison",
        "layer_study",
        *("batch_curve", "host_costs", "serving_model", "service_search", "service_measurement", "load", "acceptance"),
        *("capacity", "promotion", "fingerprint", "deployment"),
    ),
    "search": ("executors", "tracking", "study", "sweep", "report"),
    "doors": (
        *(
            "cli",
            "commands",
            "console",
            "emulator_command",
            "opening",
            "options",
            *("stopping", "guard"),
            "progress",
            "serve",
            "doctor",
            "init",
        ),
        *(
            "serve_command",
            "load_command",
            "capacity_command",
            "release_commands",
            "releases_command",
            "bundle_commands",
            "signing_command",
            "lock_command",
            "load_confirmation",
            "service_confirmation",
            "evaluation_process",
        ),
        "__main__",
    ),
    # switched on by its environment, as the vendor's kit is: it sees no target, and no layer may import it
    "aside": ("cann_emulator",),
}
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "values": ("values",),
    "numerics": ("values", "numerics"),
    # targets take what they lower from the record, and read ONNX through graph and quantizable; they know no
    # experiment, space or dataset
    "targets": ("values", "targets", "graph", "quantizable", "quantization"),
    "evaluation": ("values", "numerics", "targets", "evaluation"),
    # search sees evaluation only through `evaluate` and what an evaluation leaves behind (artifacts, journal, store)
    # (and the report draws what a study or a comparison of layers found)
    "search": (
        *("values", "numerics", "search", "evaluate", "artifacts", "comparison", "layer_study"),
        *("journal", "journal_entries", "store"),
    ),
    "doors": ("values", "numerics", "targets", "evaluation", "search", "doors"),
    "aside": ("values", "graph", "quantizable", "quantization", "yaml_reader"),
}
OWNERS = {
    "optuna": {"study", "sweep", "space", "report"},
    "mlflow": {"tracking"},
    "ray": {"executors"},
    "torch": {"export", "example"},
    "transformers": {"export", "example"},
    "ruamel": {"yaml_nodes", "yaml_reader"},
    "numba": {"quantization", "serving_model"},
    "plotly": {"report"},
    "sklearn": {"report"},
    "typer": {
        *("cli", "commands", "emulator_command"),
        *("serve_command", "load_command", "capacity_command", "release_commands"),
        *("releases_command", "signing_command", "lock_command"),
        "bundle_commands",
    },
    "rich": {
        "bundle_commands",
        *("cli", "commands", "console", "progress", "report", "doctor", "inspection"),
        *("load_command", "capacity_command", "release_commands", "releases_command"),
    },
    "litserve": {"serve"},
    "fastapi": {"serve"},
    "uvicorn": {"serve"},
    "prometheus_client": {"serve"},
    "openvino": {"targets"},
    "cryptography": {"signing"},
}
"""External packages with one home."""


def layer_of(module: str) -> str:
    for layer, members in LAYERS.items():
        if module in members:
            return layer
    pytest.fail(f"workbench.{module} is in no layer; add it to LAYERS with a reason in ARCHITECTURE.md")


def imports_of(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "workbench")
    return found


SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("file", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(file: Path) -> None:
    module = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    allowed = MAY_IMPORT[layer_of(module)]
    for name in imports_of(file):
        parts = name.split(".")
        if parts[0] == "workbench" and len(parts) > 1 and parts[1] != "__version__":
            other = parts[1]
            assert other == module or layer_of(other) in allowed or other in allowed, (
                f"{file.name} ({layer_of(module)}) imports {name} ({layer_of(other)})"
            )
        if parts[0] in OWNERS:
            assert module in OWNERS[parts[0]], f"{file.name}: only {sorted(OWNERS[parts[0]])} may import {parts[0]}"


def test_heavy_libraries_are_imported_only_when_a_command_needs_them() -> None:
    """`workbench --help` must not take the five seconds that mlflow and torch cost."""
    code = (
        "import sys, workbench.commands.cli\n"
        "print([m for m in ('torch', 'mlflow', 'optuna', 'ray', 'litserve', 'openvino', 'plotly') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
