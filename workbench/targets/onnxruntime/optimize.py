"""The child process that runs ONNX Runtime's graph optimizer: one model in, one optimized model out, log on stderr.

    python -P optimize.py LOWERED OPTIMIZED LEVEL SEVERITY [DISABLED_FUSION ...]

A process of its own, because the runtime logs to file descriptor 2 and nowhere else, and because a crash in the
optimizer must fail one candidate, not the sweep. Imports nothing of the workbench; `-P` keeps this folder, which
holds an `onnxruntime.py`, off the import path.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnxruntime as ort

LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def main(lowered: str, optimized: str, level: str, severity: str, *disabled: str) -> int:
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = optimized
    options.log_severity_level = int(severity)
    if (
        Path(lowered).with_name("weights").is_dir()
    ):  # a large model, whose optimized form keeps its weights beside it too
        data = f"{Path(optimized).name}.data"
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", data)
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "65536")
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        ort.InferenceSession(
            lowered, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(disabled) or None
        )
    # the last line of a program: whatever the runtime raised becomes its exit code and the last line of its log
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
