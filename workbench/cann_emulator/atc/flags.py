"""Every flag of the emulated atc: default, accepted values, what rejects another value (atc.md §1, §2).

Values are text, as on the command line. Sources are api/atc/cmd_flag_info.cc:27-53 (values, codes) and main_impl.cc:
178-372 (defaults) of ge v8.5.0. A flag that came after 8.5.0 is unknown, as it is to an 8.5.0 `atc`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.cann_emulator.atc.failure import AtcFailure, failure

FRAMEWORKS = "0(Caffe), 1(MindSpore), 3(TensorFlow) or 5(ONNX)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag.

    Attributes:
        about: for the usage text and for the message about a missing argument.
        values: what is accepted while the command line is parsed; empty where anything is.
        code: of a rejected value.
        since: first version that knows it, where that is not 8.5.0 or before.
    """

    name: str
    about: str
    default: str = ""
    values: tuple[str, ...] = ()
    code: str = "E10001"
    since: tuple[int, ...] = ()


def _read() -> dict[str, dict[str, Flag]]:
    """Section of the usage text → name → flag, as `flags.json` has them."""
    sections = json.loads(Path(__file__).with_name("flags.json").read_text(encoding="utf-8"))
    return {name: {flag: _flag(flag, entry) for flag, entry in flags.items()} for name, flags in sections.items()}


def _flag(name: str, entry: Mapping[str, Any]) -> Flag:
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
    return Flag(name=name, **given)


SECTIONS: Mapping[str, Mapping[str, Flag]] = _read()
FLAGS: Mapping[str, Flag] = {name: flag for section in SECTIONS.values() for name, flag in section.items()}
"""Name → flag, all versions; --help and --h are the grammar's own."""


def known_flags(version: tuple[int, ...]) -> Mapping[str, Flag]:
    """The flags that an `atc` of this version knows."""
    return {name: flag for name, flag in FLAGS.items() if version >= flag.since}


def value_of(options: Mapping[str, str], name: str) -> str:
    """The value given for a flag, or its default.

    The report's default lies in ASCEND_WORK_PATH where that is set, and a missing or empty input format is NCHW.
    """
    given = options.get(name)
    if given is not None and not (name == "input_format" and not given):
        return given
    if name == "input_format":
        return "NCHW"
    default = FLAGS[name].default
    folder = os.environ.get("ASCEND_WORK_PATH", "")
    return f"{folder}/{default}" if name == "check_report" and folder else default


def reject(flag: Flag, value: str) -> AtcFailure:
    """The failure of a value that the table does not have."""
    if flag.code == "E10007":
        return failure("E10007", parameter=flag.name, support=FRAMEWORKS)
    if flag.code == "E10010":
        return failure("E10010", loglevel=value)
    if flag.code == "E10006":
        return failure("E10006", parameter=flag.name, value=value)
    allowed = " ".join(f"[{accepted}]" for accepted in sorted(flag.values))
    return failure(
        flag.code, parameter=f"--{flag.name}", value=value, reason=f"it is none of the allowed values {allowed}"
    )
