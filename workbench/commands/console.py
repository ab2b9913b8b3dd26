"""The two consoles of the command line: results go to `out`, messages to `err`; and the one way to print on each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

# A pipe or a file has no width; 80 columns would break every node name of a model.
out = Console(width=None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "160")))
err = Console(stderr=True)


def say(text: str, *, style: str | None = None) -> None:
    """A result, as it stands: no markup is read, nothing is coloured by what it looks like, no line is broken."""
    out.print(text, style=style, highlight=False, soft_wrap=True, markup=False)


def tell(text: str, *, style: str | None = None) -> None:
    """The same, of a message."""
    err.print(text, style=style, highlight=False, soft_wrap=True, markup=False)


def note(label: str, text: str, style: str = "bold yellow") -> None:
    """A message behind a label of its own style: 'warning: …'."""
    err.print(Text.assemble((f"{label}: ", style), text), soft_wrap=True)


def ask(question: str, answers: Sequence[str] = ()) -> str | None:
    """What whoever sits before the terminal answers, one of `answers` where there are some; None where nobody does."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    while True:
        shown = f"{question} One of {', '.join(answers)}" if answers else question
        answer: str = typer.prompt(shown, default=answers[0] if answers else None).strip()
        if not answers or answer in answers:
            return answer


def print_json(body: Any) -> None:
    """One line on stdout, for programs."""
    print(json.dumps(body, ensure_ascii=False))
