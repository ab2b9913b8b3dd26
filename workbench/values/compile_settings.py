"""CompileSettings: what a target's candidates say to its compiler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSettings:
    """The `compile` part of a candidate. A target derives its own: a frozen, keyword-only dataclass of fields with
    defaults, which checks its own values in `__post_init__` and raises ConfigError."""
