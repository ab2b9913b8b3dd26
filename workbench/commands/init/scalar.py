"""Any text as a YAML scalar."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "."}  # of YAML 1.1 and 1.2


def scalar(text: str) -> str:
    """A YAML scalar that every reader takes for this very text."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT
    return text if plain else json.dumps(text, ensure_ascii=False)
