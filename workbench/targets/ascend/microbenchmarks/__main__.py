"""`python -m workbench.targets.ascend.microbenchmarks NAME... --to clock.json`: measure, print, and keep."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.targets.ascend.microbenchmarks.measurements import MEASUREMENTS, Effort
from workbench.targets.ascend.target import AscendTarget
from workbench.values.artifact import Toolchain
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError, WorkbenchError
from workbench.values.modelled_times.measured import VERSION
from workbench.values.system.files import temporary_beside
from workbench.values.system.steps import Steps


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed, 2 wrong arguments. What was measured before a failure is kept."""
    chosen = _parser().parse_args(arguments)
    effort = Effort(rows=chosen.rows, elements=chosen.elements, calls=chosen.calls)
    try:
        toolchain = AscendTarget().toolchain()
        known = _known(chosen.to, toolchain)
        names = chosen.names or list(MEASUREMENTS)
        with Steps(lambda line: print(line, file=sys.stderr, flush=True)) as steps:
            for number, name in enumerate(names, 1):
                steps(f"{name} ({number} of {len(names)})")
                measure, unit = MEASUREMENTS[name]
                value = measure(effort)
                known[name] = {"value": value, "unit": unit, "calls": effort.calls}
                _write(chosen.to, toolchain, known)
                print(f"{name}: {value:.4g} {unit}{' (emulated)' if toolchain.emulated else ''}", flush=True)
    except (WorkbenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = Effort()
    parser = argparse.ArgumentParser(
        prog="python -m workbench.targets.ascend.microbenchmarks",
        description="Measure on this machine's first device what a modelled clock only assumes.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", type=_named, help=f"{', '.join(MEASUREMENTS)}; default: all of them"
    )
    parser.add_argument("--to", type=Path, required=True, help="JSON file; what it holds of other names stays")
    parser.add_argument("--rows", type=_positive, default=defaults.rows, help="of matrix products")
    parser.add_argument("--elements", type=_positive, default=defaults.elements, help="unit of memory tests")
    parser.add_argument("--calls", type=_positive, default=defaults.calls, help="timed calls of each size")
    return parser


def _named(text: str) -> str:
    if text not in MEASUREMENTS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(MEASUREMENTS)}")
    return text


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _known(path: Path, toolchain: Toolchain) -> dict[str, Any]:
    """What the file holds already.

    Raises:
        ConfigError: it is of another form, another device, or mixes emulated and measured values.
    """
    if not path.exists():
        return {}
    data = read_json(path)
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("measured"), dict):
        raise ConfigError(
            f"is no file of measured unknowns, version {VERSION}.", file=path, hint="Choose another name."
        )
    here = (toolchain.device, toolchain.emulated)
    if (data.get("device"), data.get("emulated")) != here:
        raise ConfigError("was measured on another device.", file=path, hint="Choose another name for this one.")
    return dict(data["measured"])


def _write(path: Path, toolchain: Toolchain, measured: dict[str, Any]) -> None:
    content = {
        "version": VERSION,
        "device": toolchain.device,
        "emulated": toolchain.emulated,
        "toolchain": toolchain.fingerprint,
        "measured": measured,
    }
    with temporary_beside(path) as draft:
        draft.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
