"""What this process was given: variables that a user sets, those for what is started from it, its open files."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
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


def open_files(wanted: int = 0) -> int:
    """So many files this process may have open: its limit, 1024 by default, raised to what is wanted as far as it may
    be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    now, most = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard))
    if now < wanted:
        now = min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, hard))
    return now
