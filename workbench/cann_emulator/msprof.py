"""The program msprof, as far as it runs an application (pyacl.md §5.4).

    msprof --output=DIR [switches] --application="python3 run.py"      msprof --output=DIR [switches] python3 run.py

The emulated acl writes the tables itself: this switches it on by CANN_EMULATOR_PROFILE, and takes switches that choose
what is collected without a look: the emulator has one set of tables to give.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Exit status 0, or that of the application, or 1 for wrong arguments and missing data [inferred]."""
    count = next((index for index, word in enumerate(argv) if not word.startswith("--")), len(argv))
    if wrong := [word for word in argv[:count] if "=" not in word]:
        return _failed(f"Argument {wrong[0]} is invalid. Please use --help to see the arguments.")
    options = dict(word[2:].split("=", 1) for word in argv[:count])
    command = shlex.split(options["application"]) if "application" in options else list(argv[count:])
    if not command:
        return _failed("No application is given. Use --application=<command>.")
    output = Path(options.get("output") or ".").absolute()
    output.mkdir(parents=True, exist_ok=True)
    before = set(output.glob("PROF_*"))
    try:
        code = subprocess.run(command, env={**os.environ, "CANN_EMULATOR_PROFILE": str(output)}, check=False).returncode
    except OSError as error:
        return _failed(f"The application cannot be started: {error}")
    made = sorted(set(output.glob("PROF_*")) - before)
    if code != 0:
        return _failed(f"The application exits with {code}.", code if 0 < code < 256 else 1)
    if not made:
        return _failed("No profiling data: the application ran no model.")
    for folder in made:
        print(f"[INFO] Process profiling data complete. Data is saved in {folder}")
    return 0


def _failed(why: str, code: int = 1) -> int:
    print(f"[ERROR] {why}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
