"""The program msprof, as far as it runs an application and shows its tables (pyacl.md §5.4).

    msprof --application="python3 run.py" --output=DIR [switches]      msprof [switches] python3 run.py
    msprof --export=on --output=DIR/PROF_…

The emulated acl writes the tables itself: collecting switches it on by CANN_EMULATOR_PROFILE. Switches that choose
what is collected are checked for their names and change nothing: the emulator has one table to give.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SWITCHES = {
    *("ascendcl", "runtime-api", "task-time", "aic-metrics", "ai-core", "aicpu", "sys-hardware-mem", "aic-mode"),
    *("model-execution", "l2", "hccl", "msproftx", "ge-api", "task-memory", "storage-limit", "type", "model-id"),
    *("iteration-id", "summary-format", "environment", "aic-freq"),
}
_TABLES = "mindstudio_profiler_output"


def main(argv: Sequence[str]) -> int:
    """Exit status 0, or that of the application, or 1 for wrong arguments and missing data [inferred]."""
    options, command, wrong = _parse(argv)
    if wrong:
        print(f"[ERROR] Argument {wrong} is invalid. Please use --help to see the arguments.", file=sys.stderr)
        return 1
    output = Path(options.get("output") or ".").absolute()
    if options.get("export") == "on" or options.get("query") == "on":
        return _export(output)
    if "application" in options:
        command = shlex.split(options["application"])
    if not command:
        print("[ERROR] No application is given. Use --application=<command>.", file=sys.stderr)
        return 1
    return _collect(command, output)


def _parse(argv: Sequence[str]) -> tuple[dict[str, str], list[str], str]:
    """(switch → value, words of the application behind them, the argument that is wrong)."""
    options: dict[str, str] = {}
    for index, word in enumerate(argv):
        if not word.startswith("--"):
            return options, list(argv[index:]), ""
        name, sign, value = word[2:].partition("=")
        if not sign or name not in {*_SWITCHES, "application", "output", "export", "query", "analyze"}:
            return {}, [], word
        options[name] = value
    return options, [], ""


def _collect(command: Sequence[str], output: Path) -> int:
    output.mkdir(parents=True, exist_ok=True)
    before = set(output.glob("PROF_*"))
    try:
        code = subprocess.run(command, env={**os.environ, "CANN_EMULATOR_PROFILE": str(output)}, check=False).returncode
    except OSError as error:
        print(f"[ERROR] The application cannot be started: {error}", file=sys.stderr)
        return 1
    made = sorted(set(output.glob("PROF_*")) - before)
    if code != 0:
        print(f"[ERROR] The application exits with {code}.", file=sys.stderr)
        return code if 0 < code < 256 else 1
    if not made:
        print("[ERROR] No profiling data: the application ran no model.", file=sys.stderr)
        return 1
    for folder in made:
        print(f"[INFO] Process profiling data complete. Data is saved in {folder}")
    return 0


def _export(folder: Path) -> int:
    tables = [table for table in folder.rglob("op_summary_*.csv") if table.parent.name == _TABLES]
    if not tables:
        print(f"[ERROR] There is no profiling data in {folder}.", file=sys.stderr)
        return 1
    for table in sorted(tables):
        print(f"[INFO] Export op summary data complete: {table}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
