"""Texts for others to read, written from templates that lie beside the code: a file of Jinja for each."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


@functools.cache
def _environment(folder: Path) -> Environment:
    """Values put into a template of HTML are escaped; a name that nobody gives is an error."""
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    return made


def rendered(template: Path, **values: Any) -> str:
    """A template's text with these values in it."""
    return _environment(template.parent).get_template(template.name).render(values)


def rendered_chat(template: str, messages: Sequence[Any]) -> str:
    """A conversation by a language model's own chat template: transformers' dialect of Jinja, in a sandbox.

    Without the token that begins a text, which tokenizers put there; its date, where it has one, is 1970-01-01, so that
    the same file gives the same text.

    Raises:
        ValueError: the template fails, or refuses these messages.
    """
    dialect = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    dialect.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    dialect.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: time.strftime(form, time.gmtime(0))}
    try:
        return dialect.from_string(template).render(messages=messages, bos_token="", add_generation_prompt=False)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, SyntaxError) as error:
        raise ValueError(str(error)) from error


def _refuse(why: str) -> None:
    raise TemplateError(why)
