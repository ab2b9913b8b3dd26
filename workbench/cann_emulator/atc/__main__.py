"""`python -m workbench.cann_emulator.atc ARGS`, which `<root>/bin/atc` starts: words, flags, checks, work, verdict
(atc.md §1, §5).

The work itself, from the start of the engines on, is `workbench.cann_emulator.atc.conversion`, imported only when the
flags allow it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from io import TextIOWrapper

from workbench.cann_emulator.atc import checks, flags
from workbench.cann_emulator.atc.failure import AtcFailure, Console, failure, inner_error
from workbench.cann_emulator.atc.flags import FLAGS, SECTIONS, value_of

_ONNX = "5"
_FAILED = 255
_PROGRAM = "atc.bin"


def main(argv: Sequence[str]) -> int:
    """Run `atc` with these arguments (without the program's name).

    Returns:
        0 done or help shown, 255 failed.

    Raises:
        Exception: with CANN_EMULATOR_STRICT=1, what would be an inner error (E19999).
    """
    console = Console()
    console.line("ATC start working now, please wait for a moment.")
    try:
        options = flags.parse(argv)
    except flags.HelpAsked:
        console.line(usage())
        return 0
    except flags.Malformed as malformed:
        for line in malformed.lines:
            print(f"ERROR: {line}", file=sys.stderr, flush=True)
        console.failure(())
        return _FAILED
    except AtcFailure as refused:
        console.failure(refused.records)
        return _FAILED
    console.level = value_of(options, "log")
    console.log("info", "GE", f"command line: {_PROGRAM} {' '.join(argv)}")
    try:
        _run({**options, "_command_line": " ".join((_PROGRAM, *argv))}, console)
    except AtcFailure as failed:
        records = failed.records
    except Exception as error:  # whatever the emulator does not foresee is the vendor's inner error, told in the log
        if os.environ.get("CANN_EMULATOR_STRICT", "") not in ("", "0"):
            raise
        for line in traceback.format_exception(error):
            console.log("error", "GE", line.rstrip())
        text = f"{type(error).__name__} inside the emulator; --log=error keeps where, CANN_EMULATOR_STRICT=1 raises it"
        records = (inner_error(text),)
    else:
        console.line("...")
        console.line("ATC run success, welcome to the next use.\n")
        return 0
    console.line("...")
    console.failure(records)
    return _FAILED


def usage() -> str:
    """The usage text: every flag of 8.5.0 by section."""
    lines = [
        "usage: atc <args>",
        "an offline model of an ONNX file:",
        "atc --framework=5 --model=model.onnx --output=model --soc_version=<soc_version>",
    ]
    width = max(map(len, FLAGS)) + 4
    for section, entries in SECTIONS.items():
        lines += ["", f"[{section}]"]
        if section == "General":
            lines.append(f"  {'--h/help':{width}}this text")
        for name, flag in entries.items():
            default = f" (default {flag['default']})" if flag.get("default", "") not in ("", "-1") else ""
            lines.append(f"  {'--' + name:{width}}{flag['about']}{default}")
    return "\n".join(lines)


def _run(options: Mapping[str, str], console: Console) -> None:
    checks.check_framework(options)
    mode, framework = value_of(options, "mode"), options.get("framework", "")
    # mostly an empty value is the same as none, and shape ranges replace shapes
    replaced = "input_shape" if options.get("input_shape_range") else ""
    meant = {name: value for name, value in options.items() if value or name in checks.EMPTY_IS_A_VALUE}
    meant.pop(replaced, None)
    if mode in ("5", "6"):
        raise _not_emulated(f"what --mode={mode} asks for; --display_model_info=1 shows a model when it is built")
    if mode == "1":
        checks.check_json(options)
        if framework:
            raise _not_emulated(f"JSON of models of --framework={framework}; leave it out for an OM")
        from workbench.cann_emulator.atc.outputs import run_to_json

        return run_to_json(meant, console)
    checks.check_conversion(options, console.line)
    for name, value in options.items():
        console.log("debug", "GE", f"option {name} is {value}")
    from workbench.cann_emulator.atc.conversion import run_compile
    from workbench.cann_emulator.atc.engine import start_engine

    others = {"3": "a pre-check by itself (--mode=3)", "30": "models for nano devices (--mode=30)"}
    if mode in others or framework != _ONNX:
        start_engine(meant, console)  # an unknown chip is told whatever the model is
        what = f"models of --framework={framework}; convert ONNX models (--framework=5)"
        raise _not_emulated(others.get(mode, what))
    return run_compile(meant, console)


def _not_emulated(what: str) -> AtcFailure:
    return failure("E10055", reason=f"this atc is emulated and does not make {what}")


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        # a path need not be text in the locale's encoding; it is printed back as the bytes it came as
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")
    raise SystemExit(main(sys.argv[1:]))
