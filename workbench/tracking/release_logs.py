"""The two places of a log of releases, and how the aliases follow it.

A line of the log is the one write by which champion moves; the aliases follow. Whoever wrote the last move sets them
and then says so, and whoever finds that missing does it.

In a workspace the log is a file; one process writes at a time, and a tag of the registered model says that the aliases
may be behind. On a server each line is a version of the registered model NAME.releases. A server gives no lock, but it
numbers versions, each number once. So two who append at once get two numbers, and of lines that follow the same line
the first counts: whoever finds his own behind another's was overtaken, has changed nothing, and looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.tracking import releases
from workbench.tracking.releases import Line, Log, Mark, Release, checked, end_of, line_of, lines_of, mark_of
from workbench.tracking.server import insisted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

_LINE, _MOVED, _MOVING = "line", "moved", "workbench.moving"
_MARK = "workbench.releases"
_SOURCE = "workbench:/releases"
"""A version must name a source; a line has none."""


class Overtaken(Exception):
    """Another line follows the one that was last when this one was thought of: nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The last change of champion in the log, `entry` its number there, and whether its aliases are known to be set."""

    entry: int
    champion: int
    previous: int | None
    settled: bool


class ReleaseLog:
    """The lines of one model's log. Call its methods inside `mlflow_errors`."""

    def __init__(self, client: MlflowClient, model: str) -> None:
        self._client, self._of = client, model

    def read(self) -> Log:
        """Every line, checked."""
        raise NotImplementedError

    def end(self) -> Mark:
        """What the next line has to follow."""
        return end_of([line for _, line, _ in self._entries()], self._mark())

    def append(self, release: Release, end: Mark) -> Mark:
        """Add a line behind `end`; returns the new end.

        Raises:
            Overtaken: it is not the end any more.
        """
        raise NotImplementedError

    def begin(self) -> None:
        """The next line moves champion."""

    def unsettled(self) -> bool:
        """The aliases may be behind the log."""
        last = self.last_move()
        return last is not None and not last.settled

    def settle(self, move: Callable[[Move], None]) -> str:
        """Have the aliases say what the log's last move says; in words what was done, '' for nothing.

        They are read against the log once more after each write: who is late thus writes what is newest.
        """
        last = self.last_move()
        if last is None or last.settled:
            return ""
        while True:
            move(last)
            now = self.last_move()
            if now is None or now.entry == last.entry:
                self._say_settled(last)
                return f"set the aliases for the change of champion to version {last.champion}, not done until now"
            last = now

    def last_move(self) -> Move | None:
        for entry, line, settled in reversed(self._entries()):
            said = (line.content or {}).get("release", {})
            before, after = said.get("champion_before"), said.get("champion_after")
            if said.get("act") == "recovery":  # earlier workbenches wrote so what stood in the end
                return None
            if isinstance(after, int) and before != after:
                previous = said.get("previous_after")  # whoever may write to the log wrote it
                previous = previous if isinstance(previous, int) else None
                return Move(entry=entry, champion=after, previous=previous, settled=settled)
        return None

    def _entries(self) -> Sequence[tuple[int, Line, bool]]:
        """(number in its place, line, whether its aliases are known to be set), in their order."""
        raise NotImplementedError

    def _say_settled(self, move: Move) -> None:
        raise NotImplementedError

    def _tag(self, key: str) -> str:
        model = model_of(self._client, self._of)
        return "" if model is None else str(model.tags.get(key, ""))

    def _mark(self) -> Mark | None:
        return mark_of(self._tag(_MARK))

    def _set_mark(self, mark: Mark) -> None:
        insisted(lambda: self._client.set_registered_model_tag(self._of, _MARK, str(mark)))


class FileLog(ReleaseLog):
    """`Versions` holds the registry's lock while anything is written."""

    def __init__(self, client: MlflowClient, model: str, file: Path) -> None:
        super().__init__(client, model)
        self._file = file

    def read(self) -> Log:
        return releases.read_log(self._file, self._mark())

    def append(self, release: Release, end: Mark) -> Mark:
        mark = releases.append(self._file, self._of, release, self._mark())
        self._set_mark(mark)
        return mark

    def begin(self) -> None:
        self._client.set_registered_model_tag(self._of, _MOVING, "true")

    def _entries(self) -> list[tuple[int, Line, bool]]:
        settled = not self._tag(_MOVING)
        return [(place, line, settled) for place, line in enumerate(lines_of(self._file)[0])]

    def _say_settled(self, move: Move) -> None:
        self._client.delete_registered_model_tag(self._of, _MOVING)


class ServerLog(ReleaseLog):
    def __init__(self, client: MlflowClient, model: str) -> None:
        super().__init__(client, model)
        self.name = f"{model}.releases"

    def read(self) -> Log:
        found = self._versions()
        log = checked([line for _, line in _counted(found)], self._mark())
        return replace(log, overtaken=len(found) - len(log.lines))

    def append(self, release: Release, end: Mark) -> Mark:
        text = releases.text_of(self._of, release, end)
        said = f"The log of releases of {self._of}, written by the workbench: `workbench releases {self._of}`"
        make_model(self._client, self.name, said)
        insisted(
            lambda: self._client.create_model_version(
                self.name,
                _SOURCE,
                tags={_LINE: text},
                description=_sentence(release),
                await_creation_for=0,
            )
        )
        mine = line_of(text.encode()).sha256
        if mine not in {line.sha256 for _, line, _ in self._entries()}:
            raise Overtaken
        known, mark = self._mark(), Mark(number=end.number + 1, sha256=mine)
        if known is None or known.number < mark.number:
            self._set_mark(mark)
        return mark

    def _entries(self) -> list[tuple[int, Line, bool]]:
        counted = _counted(self._versions())
        return [(int(version.version), line, version.tags.get(_MOVED) == "true") for version, line in counted]

    def _say_settled(self, move: Move) -> None:
        insisted(lambda: self._client.set_model_version_tag(self.name, str(move.entry), _MOVED, "true"))

    def _versions(self) -> list[tuple[ModelVersion, Line]]:
        found = sorted(versions_named(self._client, self.name), key=lambda version: int(version.version))
        return [(version, line_of(version.tags.get(_LINE, "").encode())) for version in found]


def _counted(entries: Sequence[tuple[ModelVersion, Line]]) -> list[tuple[ModelVersion, Line]]:
    """Without those that were overtaken."""
    followed: set[str] = set()
    kept = []
    for version, line in entries:
        before = str((line.content or {}).get("before", ""))
        if before in followed:
            continue
        followed |= {before} if line.content is not None else set()
        kept.append((version, line))
    return kept


def versions_named(client: MlflowClient, name: str) -> Iterator[ModelVersion]:
    token: str | None = None
    while True:
        page: Any = client.search_model_versions(f"name={_quoted(name)}", page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def model_of(client: MlflowClient, name: str) -> RegisteredModel | None:
    found = client.search_registered_models(f"name={_quoted(name)}")
    return found[0] if found else None


def make_model(client: MlflowClient, name: str, about: str) -> None:
    """Nothing where it is there."""
    from mlflow.exceptions import MlflowException

    if model_of(client, name) is not None:
        return
    try:
        client.create_registered_model(name, description=about)
    except MlflowException:
        if model_of(client, name) is None:  # it was not another command that was quicker
            raise


def _quoted(name: str) -> str:
    return f'"{name}"' if "'" in name else f"'{name}'"


def _sentence(release: Release) -> str:
    """For the registry's page."""
    before, after = ("none" if n is None else str(n) for n in (release.champion_before, release.champion_after))
    champion = f"champion {before} -> {after}" if before != after else f"champion stays {after}"
    words = [f"{release.act} of version {release.version}", champion, release.verdict, release.reason[:500]]
    return ", ".join(filter(None, words))
