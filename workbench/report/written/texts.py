"""What the reports say, in the language that is spoken: English where it is used, Chinese in `chinese.json`."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from workbench.report.written.document import Language
from workbench.report.written.drawing import chinese_font

_SPOKEN: ContextVar[Language] = ContextVar("spoken", default="en")


@functools.cache
def chinese() -> dict[str, Any]:
    """`texts`: English → Chinese. `notes`: patterns of what verdicts say in English, each with its Chinese; `words` in
    them, the longer first. `clock`: what a target calls open of its clock."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("chinese.json").read_text(encoding="utf-8"))
    return found


def say(english: str, /, **values: object) -> str:
    """The text in the language that is spoken; `{name}` is filled in. What follows a '¦' is not said: it tells two
    meanings of one English text apart."""
    text = chinese()["texts"][english] if spoken() == "zh" else english.partition("¦")[0]
    return str(text).format(**values)


def spoken() -> Language:
    return _SPOKEN.get()


@contextlib.contextmanager
def speaking(language: Language) -> Iterator[None]:
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


@contextlib.contextmanager
def in_pictures() -> Iterator[None]:
    """English where this machine has no letters for the language that is spoken."""
    with speaking("en" if chinese_font() is None else spoken()):
        yield
