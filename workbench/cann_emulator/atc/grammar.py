"""From words to options, as GNU getopt_long does it for atc (atc.md §1; ge v8.5.0 api/atc/cmd_flag_info.cc:278-300).

`-flag` is `--flag`, `--soc-version` is `--soc_version`, an unambiguous beginning of a name stands for the name, words
that are no flags may stand anywhere and are reported at the end. Each value is checked as it comes, so the first bad
one decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.flags import Flag, reject

_TRUE = frozenset({"", "1", "t", "true", "y", "yes"})
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


def parse(words: Sequence[str], known: Mapping[str, Flag]) -> dict[str, str]:
    """Flag → its last value, in the order of first appearance.

    Raises:
        Malformed: an unknown flag, one without its argument, or words that belong to none.
        HelpAsked: help comes first.
        AtcFailure: a value that its flag does not have (E10001, E10006, E10007, E10010; E10003 of --help).
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
        name, equals, value = word[2:].partition("=") if word.startswith("--") else (_short(word), "", "")
        resolved = _resolve(name, known)
        if resolved == "help":
            if _asks_for_help(value):
                raise HelpAsked
            continue
        if not equals:
            if not pending:
                raise Malformed(_missing(word, known))
            value = pending.pop(0)
        flag = known[resolved]
        if flag.values and value not in flag.values:
            raise reject(flag, value)
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


def _short(word: str) -> str:
    """The name of a one-letter flag; only -h exists."""
    if word[1] != "h":
        raise _unknown(word)
    return "help"


def _resolve(name: str, known: Mapping[str, Flag]) -> str:
    if name in known or name == "help":
        return name
    if name == "h":
        return "help"
    candidates = [flag for flag in (*known, "help") if flag.startswith(name)]
    if len(candidates) != 1:
        raise _unknown(name)
    return candidates[0]


def _unknown(word: str) -> Malformed:
    return Malformed(f"unknown command line flag '{word.lstrip('-')}'")


def _missing(word: str, known: Mapping[str, Flag]) -> str:
    flag = known.get(word.lstrip("-"))
    about = f"; flag description: {flag.about}" if flag else ""
    return f"flag '{word}' is missing its argument{about}"


def _asks_for_help(value: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise failure("E10003", parameter="help", value=value, reason="its type is bool")
