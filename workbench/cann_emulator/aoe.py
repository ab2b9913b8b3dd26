"""The program aoe, as far as files and exit codes go (atc.md §9): nothing is tuned, and no time changes.

The bank goes below the home, where atc.md says. Whether A2 is tuned the vendor's pages contradict each other on: it is
here, and with CANN_EMULATOR_AOE=refuses it is not. Words and codes but the end line are [inferred].
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.cann_emulator.revision import emulator

_BANK = "Ascend/latest/data/aoe/custom/op/Ascend910B3"


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 done, 1 refused."""
    options = dict(word.removeprefix("--").partition("=")[::2] for word in argv)
    model, refused = Path(options.get("model", "")), ""
    if options.get("job_type") != "2":
        refused = "--job_type is required, and 2 (operator tuning) is what this device has"
    elif not model.is_file():
        refused = f"--model={model} is no file"
    elif os.environ.get("CANN_EMULATOR_AOE") == "refuses":
        refused = "tuning for offline inference is not supported on this product"
    if refused:
        print(f"[ERROR] {refused} ({emulator()})", file=sys.stderr)
        return 1
    asked = {"model": hashlib.sha256(model.read_bytes()).hexdigest(), "input_shape": options.get("input_shape", "")}
    about = json.dumps({"emulator": emulator(), **asked}, indent=2)
    name = f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.json"
    for folder in (Path(os.environ.get("HOME", "/"), _BANK), Path("aoe_workspace", model.stem, "tunespace/result")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(about, encoding="utf-8")
    print("Aoe process finished")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
