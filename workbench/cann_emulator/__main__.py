"""`python -m workbench.cann_emulator env|fit|remove`: what `workbench emulator` starts.

`env` prints lines for `eval "$(…)"` in sh or bash, and nothing else on stdout. Values are complete, quoted text: no
line depends on how the shell that reads it splits words.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.cann_emulator.revision import CANN
from workbench.cann_emulator.state import state_folder
from workbench.cann_emulator.tree import (
    cache_folder,
    default_root,
    remove_tree,
    search_paths,
    variables,
    write_tree,
)
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import load_device_data


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 done, 1 failed, 2 wrong arguments."""
    if argv[:1] == ["fit"]:
        return int(importlib.import_module("workbench.cann_emulator.fit").main(list(argv[1:])) or 0)
    parser = argparse.ArgumentParser(
        prog="workbench emulator", description=f"An emulator of CANN {CANN} for a card of the 910B family."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    env = commands.add_parser("env", help='write the CANN-shaped folder and print export lines: eval "$(… env)"')
    env.add_argument("--root", type=Path, help="where the folder lies; default: the user's cache")
    env.add_argument("--devices", type=int, choices=range(17), metavar="0..16", help="cards; default 1")
    env.add_argument("--hbm-mb", type=int, help="HBM of each card; default: what the chip has")
    env.add_argument("--soc", help="the chip, as ATC spells it: Ascend910B1 to Ascend910B4-1; default Ascend910B3")
    commands.add_parser("fit", help="refit the time model from an msprof summary", add_help=False)
    remove = commands.add_parser("remove", help="delete what env wrote")
    remove.add_argument("--root", type=Path, help="the folder; default: all of them in the user's cache")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "remove":
            cached = [place for place in cache_folder().glob("*") if (place / ".emulator").is_file()]
            removed = [place for place in ([arguments.root] if arguments.root else cached) if remove_tree(place)]
            words = [f"removed {place}" for place in removed]
            print("\n".join(words or [f"nothing at {arguments.root or cache_folder()}"]))
            return 0
        root: Path = (arguments.root or default_root()).expanduser().absolute()
        if arguments.hbm_mb is not None and arguments.hbm_mb < 1:
            parser.error(f"argument --hbm-mb: {arguments.hbm_mb} is no size")
        if any(character in str(root) for character in ":\n\r"):
            parser.error(f"argument --root: {str(root)!r} has a colon or a line break, which no search path can hold")
        optional = {
            "CANN_EMULATOR_DEVICES": arguments.devices,
            "CANN_EMULATOR_HBM_MB": arguments.hbm_mb,
            "CANN_EMULATOR_SOC": arguments.soc,
        }
        if arguments.soc is not None:
            load_device_data(arguments.soc, known=True)
        print(environment_lines(write_tree(root), optional))
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def environment_lines(root: Path, optional: Mapping[str, str | int | None]) -> str:
    """Export lines that put `root` in front of the search paths of this process's environment, each path once."""
    before = os.environ.get("ASCEND_HOME_PATH")
    if before and Path(before) != root and not (Path(before) / ".emulator").is_file():
        print(f"note: this replaces the CANN at {before} in the shell that evaluates it", file=sys.stderr)
    values = variables(root)
    for name, folders in search_paths(root).items():
        front = [str(folder) for folder in folders]
        # Folders of another tree of the emulator go: its atc is not to be found behind this one
        found = (p for p in os.environ.get(name, "").split(":") if p and p not in front)
        rest = [p for p in found if not any((parent / ".emulator").is_file() for parent in Path(p).parents)]
        values[name] = ":".join(front + rest)
    values["CANN_EMULATOR_VERSION"] = CANN
    values["CANN_EMULATOR_STATE"] = str(state_folder())
    lines = [f"export {name}={shlex.quote(value)};" for name, value in values.items()]
    lines += [f"export {name}={value};" for name, value in optional.items() if value is not None]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
