"""Which files an execution left (accuracy guide 8.5.0, dump of offline models).

    <time, 14 digits>/<device>/<model>/<model id>/<data index>/<op type>.<op name>.<task>.<stream>.<time stamp>

A name that the file system could not take is in mapping.csv beside the file. Anything else in there is left alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.values.errors import ConfigError, MeasureError

MAPPING = "mapping.csv"
MOST_FILES = 200_000
_MOST_MAPPING_BYTES = 1 << 24
_TIME = re.compile(r"\d{14}")
_NAME = re.compile(r"(?P<type>[^.]+)\.(?P<name>.+?)\.(?P<task>\d+)\.(?:(?P<stream>\d+)\.)?(?P<stamp>\d{6,})")
_STATUS = "Opdebug.Node_OpDebug."


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFile:
    """Attributes:
    op_name: with underscores for points, slashes, backslashes and blanks.
    """

    path: Path
    op_type: str
    op_name: str
    task: int
    stream: int
    stamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One folder `<data index>`: its operators in the order in which they ran."""

    model: str
    index: int
    files: tuple[OperatorFile, ...]


def is_dump(folder: Path) -> bool:
    """Whether executions lie in here, as a device writes them."""
    try:
        return any(_TIME.fullmatch(entry.name) and entry.is_dir() for entry in folder.iterdir())
    except OSError:
        return False


def executions(folder: Path) -> tuple[Execution, ...]:
    """Every execution of a dump folder, the oldest first.

    Raises:
        ConfigError: nothing was dumped there.
        MeasureError: there are too many files, or a folder cannot be read.
    """
    found = []
    count = 0
    for place in _places(folder):
        files = tuple(operator_files(place))
        count += len(files)
        if count > MOST_FILES:
            raise MeasureError(f"{folder}: more than {MOST_FILES} dump files. Dump fewer calls or fewer operators.")
        if files:
            _, _, model, _, index = place.relative_to(folder).parts
            ran = tuple(sorted(files, key=lambda file: (file.stamp, file.task)))
            found.append(Execution(model=model, index=int(index), files=ran))
    if not found:
        raise ConfigError(
            "no dump of a model is in this folder.",
            file=folder,
            hint="It holds folders by time; dump_path of acl.json, not a folder inside it.",
        )
    return tuple(sorted(found, key=lambda one: (one.files[0].stamp, one.index)))


def _places(folder: Path) -> Iterator[Path]:
    """The folders five levels below; no link is followed."""
    places = [folder]
    for level in range(5):
        places = [inner for place in places for inner in _folders(place, number=level in (1, 3, 4))]
        if level == 0:
            places = [place for place in places if _TIME.fullmatch(place.name)]
        if len(places) > MOST_FILES:
            raise MeasureError(f"{folder}: more than {MOST_FILES} folders.")
    yield from places


def _folders(place: Path, *, number: bool) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise MeasureError(f"{place}: it cannot be read: {error.strerror}") from error
    return [place / name for name in sorted(found) if not number or (name.isascii() and name.isdigit())]


def operator_files(place: Path) -> Iterator[OperatorFile]:
    """The operators' dumps of one execution, in no order.

    Raises:
        MeasureError: the folder cannot be read.
    """
    try:
        with os.scandir(place) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError as error:
        raise MeasureError(f"{place}: it cannot be read: {error.strerror}") from error
    mapping = _mapping(place / MAPPING) if MAPPING in names else {}
    for name in names:
        told = mapping.get(name, name)
        match = _NAME.fullmatch(told)
        if match is None or told.startswith(_STATUS):
            continue
        yield OperatorFile(
            path=place / name,
            op_type=match["type"],
            op_name=match["name"],
            task=int(match["task"][:18]),
            stream=int((match["stream"] or "0")[:18]),
            stamp=int(match["stamp"][:18]),
        )


def _mapping(file: Path) -> Mapping[str, str]:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_MAPPING_BYTES + 1)
    except OSError as error:
        raise MeasureError(f"{file}: it cannot be read: {error.strerror}") from error
    if len(content) > _MOST_MAPPING_BYTES:
        raise MeasureError(f"{file}: it has more than {_MOST_MAPPING_BYTES >> 20} MiB.")
    lines = content.decode("utf-8", errors="replace").splitlines()
    pairs = (line.partition(",") for line in lines)
    return {short: long for short, comma, long in pairs if comma}
