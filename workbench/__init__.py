"""INT8 quantization and optimization workbench: from a float ONNX model to a Pareto set and a verified bundle.

The names of `__all__` are stable and described in docs/api.md. Each is imported when it is first used, so that
`import workbench` and the command line start without the libraries behind them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.api.bundle import Exported, LoadedBundle, export, load_bundle
    from workbench.api.llm import CalibratedLlm, calibrate_llm
    from workbench.api.opening import read_experiment
    from workbench.api.result import Row, SweepResult, read_sweep
    from workbench.api.study import compare
    from workbench.api.sweep import sweep
    from workbench.inputs.experiment import Experiment
    from workbench.report.summary import Member, Recommendation
    from workbench.study.amct_command import Calibrated, calibrate
    from workbench.study.compared import Comparison, Limits
    from workbench.values.candidate import Candidate
    from workbench.values.errors import (
        BundleError,
        CalibrationError,
        CandidateError,
        CheckError,
        CompileError,
        ConfigError,
        CrashError,
        LoweringError,
        MeasureError,
        ToolchainError,
        WorkbenchError,
    )
    from workbench.values.evidence import Evidence
    from workbench.values.measurement import Estimate
    from workbench.values.results import Evaluation

__version__ = "0.1.0"

__all__ = [
    "BundleError",
    "Calibrated",
    "CalibratedLlm",
    "CalibrationError",
    "Candidate",
    "CandidateError",
    "CheckError",
    "Comparison",
    "CompileError",
    "ConfigError",
    "CrashError",
    "Estimate",
    "Evaluation",
    "Evidence",
    "Experiment",
    "Exported",
    "Limits",
    "LoadedBundle",
    "LoweringError",
    "MeasureError",
    "Member",
    "Recommendation",
    "Row",
    "SweepResult",
    "ToolchainError",
    "WorkbenchError",
    "__version__",
    "calibrate",
    "calibrate_llm",
    "compare",
    "export",
    "load_bundle",
    "read_experiment",
    "read_sweep",
    "sweep",
]

_HOMES = {
    "workbench.api.bundle": ("Exported", "LoadedBundle", "export", "load_bundle"),
    "workbench.api.llm": ("CalibratedLlm", "calibrate_llm"),
    "workbench.api.opening": ("read_experiment",),
    "workbench.api.result": ("Row", "SweepResult", "read_sweep"),
    "workbench.api.study": ("compare",),
    "workbench.api.sweep": ("sweep",),
    "workbench.inputs.experiment": ("Experiment",),
    "workbench.report.summary": ("Member", "Recommendation"),
    "workbench.study.amct_command": ("Calibrated", "calibrate"),
    "workbench.study.compared": ("Comparison", "Limits"),
    "workbench.values.candidate": ("Candidate",),
    "workbench.values.evidence": ("Evidence",),
    "workbench.values.measurement": ("Estimate",),
    "workbench.values.results": ("Evaluation",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # so that type checkers refuse names that are not there

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(_HOME_OF.get(name, "workbench.values.errors")), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
