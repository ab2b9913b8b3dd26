"""The verdict that `workbench load --baseline` wrote, read back."""

from __future__ import annotations

from pathlib import Path

from workbench.shipping.acceptance import Verdict, verdict_from_json
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError


def read_verdict(path: Path) -> Verdict:
    """From `verdict.json` of `workbench load --to`, or from what `workbench load --json` printed.

    Raises:
        ConfigError: it holds no verdict, or one of another version.
    """
    body = read_json(path)
    if isinstance(body, dict) and isinstance(body.get("verdict"), dict):
        body = body["verdict"]
    if not isinstance(body, dict) or "criteria" not in body:
        raise ConfigError(
            "holds no verdict of this workbench.", file=path, hint="Write one: workbench load … --baseline … --to DIR"
        )
    try:
        return verdict_from_json(body)
    except ValueError as error:
        raise ConfigError(f"holds no verdict of this workbench: {error}.", file=path) from error
