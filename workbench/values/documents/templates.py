"""Texts for others to read, written from templates that lie beside the code: a file of Jinja for each."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


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
