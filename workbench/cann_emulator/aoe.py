"""The program aoe, as far as files and exit codes go (atc.md §9): nothing is tuned, and no time changes.

    aoe --framework=5 --model=m.onnx --job_type=2 [flags of ATC]

The bank goes where TUNE_BANK_PATH says, else below the home. Whether A2 is tuned the vendor's pages contradict each
other on: it is here, and with CANN_EMULATOR_AOE=refuses it is not. Words and codes but the end line are [inferred].
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.cann_emulator.revision import emulator

_SHORT = {"-m": "--model", "-f": "--framework", "-j": "--job_type"}
_FAILED = 1
_HOME_BANK = "Ascend/latest/data/aoe/custom/op/Ascend910B3"


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 done, 1 refused."""
    options = {_SHORT.get(name, name): value for name, _, value in (word.partition("=") for word in argv)}
    model = Path(options.get("--model", ""))
    if options.get("--job_type") != "2":
        refused = "--job_type is required, and 2 (operator tuning) is what this device has"
    elif not model.is_file():
        refused = f"--model={model} is no file"
    elif os.environ.get("CANN_EMULATOR_AOE") == "refuses":
        refused = "tuning for offline inference is not supported on this product"
    else:
        refused = ""
    if refused:
        print(f"[ERROR] {refused} ({emulator()})", file=sys.stderr)
        return _FAILED
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    named = os.environ.get("TUNE_BANK_PATH")
    bank = Path(named) if named else Path(os.environ.get("HOME", "/"), _HOME_BANK)
    result = Path("aoe_workspace", f"{model.stem}_{digest[:12]}", "tunespace", "result")
    for folder in (bank, result):
        folder.mkdir(parents=True, exist_ok=True)
    shape = options.get("--input_shape", "")
    about = json.dumps({"emulator": emulator(), "model": digest, "input_shape": shape}, indent=2)
    name = hashlib.sha256(f"{digest} {shape}".encode()).hexdigest()[:16]
    for file in (bank / f"{name}.json", result / "aoe_result_opat.json"):
        file.write_text(about, encoding="utf-8")
    print("Aoe process finished")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
