"""Every flag of the emulated atc: default, accepted values, what rejects another value; and the command line.

Values are text, as on the command line (atc.md §1, §2). Sources are api/atc/cmd_flag_info.cc:27-53 (values, codes) and
main_impl.cc:178-372 (defaults) of ge v8.5.0.

Words are read as GNU getopt_long does it for atc (cmd_flag_info.cc:278-300): `-flag` is `--flag`, `--soc-version` is
`--soc_version`, an unambiguous beginning of a name stands for the name, words that are no flags may stand anywhere and
are reported at the end. Each value is checked as it comes, so the first bad one decides.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.cann_emulator.atc.failure import failure, invalid

FRAMEWORKS = "0(Caffe), 1(MindSpore), 3(TensorFlow) or 5(ONNX)"


SECTIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = json.loads(
    Path(__file__).with_name("flags.json").read_text(encoding="utf-8")
)
"""Section of the usage text → name → what is said of the flag. `about` is for the usage text and the message about a
missing argument; `values`, where there are any, is all that is accepted while the command line is parsed, and `code`
what rejects another one, E10001 where it is not said."""
FLAGS: Mapping[str, Mapping[str, Any]] = {n: flag for section in SECTIONS.values() for n, flag in section.items()}
"""Name → flag; --help and --h are the grammar's own."""


def value_of(options: Mapping[str, str], name: str) -> str:
    """The value given for a flag, or its default.

    The report's default lies in ASCEND_WORK_PATH where that is set, and a missing or empty input format is NCHW.
    """
    given = options.get(name)
    if name == "input_format":
        return given or "NCHW"
    if given is not None:
        return given
    default = str(FLAGS[name].get("default", ""))
    folder = os.environ.get("ASCEND_WORK_PATH", "")
    return f"{folder}/{default}" if name == "check_report" and folder else default


# --- from words to options ---

_FALSE = frozenset({"0", "f", "false", "n", "no"})
_PREFIX_LENGTH = 4
"""Letters that the rewriting of - to _ leaves alone: the dashes and the first two of the name."""


class Malformed(Exception):
    """The words are no command line; `lines` go to stderr, each behind `ERROR: `."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class HelpAsked(Exception):
    """--help or --h stood before anything that is wrong."""


def parse(words: Sequence[str]) -> dict[str, str]:
    """Flag → its last value, in the order of first appearance.

    Raises:
        Malformed: an unknown flag, one without its argument, or words that belong to none.
        HelpAsked: help comes first.
        AtcFailure: a value that its flag does not have (E10001, E10006, E10007, E10010).
    """
    options: dict[str, str] = {}
    strays: list[str] = []
    pending = [_rewritten(word) for word in words]
    while pending:
        word = pending.pop(0)
        if word == "--":
            strays += pending
            break
        if not word.startswith("-") or word == "-":
            strays.append(word)
            continue
        name, equals, value = word[2:].partition("=") if word.startswith("--") else ("help", "", "")
        if not word.startswith(("--", "-h")):  # of one-letter flags
            raise _unknown(word)
        resolved = _resolve(name)
        if resolved == "help":
            if value.lower() not in _FALSE:
                raise HelpAsked
            continue
        if not equals:
            if not pending:
                flag = FLAGS.get(word.lstrip("-"))
                about = f"; flag description: {flag['about']}" if flag else ""
                raise Malformed(f"flag '{word}' is missing its argument{about}")
            value = pending.pop(0)
        if value not in (values := FLAGS[resolved].get("values", (value,))):
            if code := FLAGS[resolved].get("code"):
                raise failure(code, parameter=resolved, value=value, support=FRAMEWORKS, loglevel=value)
            allowed = " ".join(f"[{accepted}]" for accepted in sorted(values))
            raise invalid(resolved, value, f"it is none of the allowed values {allowed}")
        options[resolved] = value
    if strays:
        raise Malformed(*(f"Non-option parameter: {stray}" for stray in strays))
    return options


def _rewritten(word: str) -> str:
    if re.match(r"-[A-Za-z]{2}", word):
        word = f"-{word}"
    if re.match(r"--[A-Za-z]{2}", word):
        name, equals, value = word[_PREFIX_LENGTH:].partition("=")
        return word[:_PREFIX_LENGTH] + name.replace("-", "_") + equals + value
    return word


def _resolve(name: str) -> str:
    if name in FLAGS or name == "help":
        return name
    if name == "h":
        return "help"
    candidates = [flag for flag in (*FLAGS, "help") if flag.startswith(name)]
    if len(candidates) != 1:
        raise _unknown(name)
    return candidates[0]


def _unknown(word: str) -> Malformed:
    return Malformed(f"unknown command line flag '{word.lstrip('-')}'")
