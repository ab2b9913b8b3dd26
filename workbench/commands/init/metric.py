"""`--metric`: the user's own function, or one of a library by its name, for the manifest's `metric:`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workbench.commands.init.scalar import scalar
from workbench.inputs.library_metrics import NAMED
from workbench.values.documents.input_files import check_file
from workbench.values.errors import ConfigError, nearest

_KEY = "--metric"


@dataclass(frozen=True, slots=True, kw_only=True)
class WishedMetric:
    """
    Attributes:
        file: of the function; None for a library's metric.
        name: of the function, or of the metric.
        options: as written, those that are files as paths.
    """

    file: Path | None
    name: str
    options: tuple[tuple[str, str | Path], ...] = ()

    def text(self, show: Callable[[Path], str]) -> str:
        """The value of the manifest's key."""
        if self.file is not None:
            return scalar(f"{show(self.file)}:{self.name}")
        parts = [f"name: {self.name}"]
        for key, value in self.options:
            if isinstance(value, Path):
                parts.append(f"{key}: {scalar(show(value))}")
            else:
                whole = NAMED[self.name].options.get(key) in ("integer", "number")
                parts.append(f"{key}: {value if whole else scalar(value)}")
        return f"{{{', '.join(parts)}}}"


def wished_metric(written: str) -> WishedMetric:
    """`file.py:function`, `NAME`, or `NAME:OPTION=VALUE,OPTION=VALUE`.

    Raises:
        ConfigError: there is no such file or metric, or an option is no OPTION=VALUE.
    """
    file, colon, function = written.rpartition(":")
    if colon and file.endswith(".py"):
        check_file(Path(file), key=_KEY)
        return WishedMetric(file=Path(file), name=function)
    name, _, rest = written.partition(":")
    if name not in NAMED:
        able = [metric for metric, known in NAMED.items() if not known.refused]
        hint = f"Write file.py:function; or {nearest(name, able)}"
        raise ConfigError(f"{name!r} is no metric of a library, nor a function of a file.", key=_KEY, hint=hint)
    options: list[tuple[str, str | Path]] = []
    for part in filter(None, rest.split(",")):
        key, equal, value = (piece.strip() for piece in part.partition("="))
        if not equal:
            raise ConfigError(f"{part!r} is no option.", key=_KEY, hint="Write NAME:OPTION=VALUE,OPTION=VALUE.")
        options.append((key, Path(value) if NAMED[name].options.get(key) == "file" else value))
    return WishedMetric(file=None, name=name, options=tuple(options))
