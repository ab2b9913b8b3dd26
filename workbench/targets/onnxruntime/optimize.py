"""The child process that runs ONNX Runtime's graph optimizer: a model in, FOLDER/LEVEL.onnx out.

    python -P optimize.py LOWERED FOLDER LEVEL SEVERITY [DISABLED_FUSION ...]

The log goes to stderr: the runtime logs to file descriptor 2 and nowhere else. Imports nothing of the workbench; `-P`
keeps this folder off the import path.
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


_APART = "session.optimized_model_external_initializers_"


def main(lowered: str, folder: str, level: str, severity: str, *disabled: str) -> int:
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(Path(folder) / f"{level}.onnx")
    options.log_severity_level = int(severity)
    if Path(lowered).with_name("weights").is_dir():  # a large model, whose optimized form keeps them apart too
        options.add_session_config_entry(f"{_APART}file_name", f"{level}.onnx.data")
        options.add_session_config_entry(f"{_APART}min_size_in_bytes", "65536")
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    try:
        ort.InferenceSession(lowered, options, providers=providers, disabled_optimizers=list(disabled) or None)
    # the last line of a program: whatever the runtime raised becomes its exit code and the last line of its log
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
