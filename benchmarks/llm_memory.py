"""The peak of memory of `workbench calibrate-llm` on a model, measured, beside what was forecast.

    python -m benchmarks.llm_memory MODEL_DIR --cfg recipe.yaml --data prompts.jsonl

The process runs the command's own function into a temporary folder and asks the kernel for its peak (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from workbench.api.llm import calibrate_llm


def peak_bytes() -> int:
    """The most memory that this process has had resident, mapped files among it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status names no VmHWM")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--cfg", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    before = peak_bytes()
    with tempfile.TemporaryDirectory(prefix="llm-memory-") as folder:
        done = calibrate_llm(given.model, Path(folder) / "out", cfg=given.cfg, data=given.data)
    print(
        json.dumps(
            {
                "tokens": done.tokens,
                "before_bytes": before,
                "peak_bytes": peak_bytes(),
                "forecast_bytes": done.forecast.memory_bytes,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
