"""Variables of this process: what a user says by one, and those for what is started from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from workbench.values.errors import ConfigError


def number_of(variable: str, usual: float) -> float:
    """Raises ConfigError for a variable that is set and holds no positive number."""
    written = os.environ.get(variable)
    if not written:
        return usual
    try:
        value = float(written)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise ConfigError(f"{written!r} is not a positive number.", key=variable)
    return value


@contextlib.contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Children that are started meanwhile find these; for where whoever starts them lets nobody say it of one child."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
