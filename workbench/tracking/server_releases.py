"""The log of releases on a server: each line a version of the registered model NAME.releases.

A server gives no lock, but it numbers versions, each number once. So two who append at once get two numbers, and of
lines that follow the same line the first counts: whoever finds his own behind another's was overtaken, has changed
nothing, and looks again. That makes a line the one write by which champion moves. The aliases follow the log: whoever
wrote the last move sets them and then says so at the line (its tag `moved`), and whoever finds that missing does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.tracking.releases import Line, Log, Mark, Release, checked, end_of, line_of, mark_of, text_of
from workbench.tracking.server import insisted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

_LINE, _MOVED = "line", "moved"
_MARK = "workbench.releases"
_SOURCE = "workbench:/releases"
"""A version must name a source; a line has none."""


class Overtaken(Exception):
    """Another line follows the one that was last when this one was thought of: nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The last change of champion in the log, and whether its aliases are known to be set."""

    entry: int
    champion: int
    previous: int | None
    settled: bool


class ServerLog:
    """The lines of one model's log. Call its methods inside `mlflow_errors`."""

    def __init__(self, client: MlflowClient, name: str) -> None:
        self._client, self._of, self.name = client, name, f"{name}.releases"

    def read(self) -> Log:
        found = self._entries()
        log = checked([line for _, line in counted(found)], self._mark())
        return Log(
            lines=log.lines,
            problems=log.problems,
            unmarked=log.unmarked,
            overtaken=len(found) - len(log.lines),
        )

    def end(self) -> Mark:
        """What the next line has to follow."""
        return end_of([line for _, line in counted(self._entries())], self._mark())

    def append(self, release: Release, end: Mark) -> Mark:
        """Add a line behind `end`; returns the new end.

        Raises:
            Overtaken: it is not the end any more.
        """
        text = text_of(self._of, release, end)
        if self._model() is None:
            self._make()
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
        if mine not in {line.sha256 for _, line in counted(self._entries())}:
            raise Overtaken
        known, mark = self._mark(), Mark(number=end.number + 1, sha256=mine)
        if known is None or known.number < mark.number:
            insisted(lambda: self._client.set_registered_model_tag(self._of, _MARK, str(mark)))
        return mark

    def last_move(self) -> Move | None:
        for entry, line in reversed(counted(self._entries())):
            said = (line.content or {}).get("release", {})
            before, after = said.get("champion_before"), said.get("champion_after")
            if isinstance(after, int) and before != after:
                settled = entry.tags.get(_MOVED) == "true"
                previous = said.get("previous_after")  # whoever may write to the server wrote it
                previous = previous if isinstance(previous, int) else None
                return Move(entry=int(entry.version), champion=after, previous=previous, settled=settled)
        return None

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
                insisted(partial(self._client.set_model_version_tag, self.name, str(last.entry), _MOVED, "true"))
                return f"set the aliases for the change of champion to version {last.champion}, not done until now"
            last = now

    def _entries(self) -> list[tuple[ModelVersion, Line]]:
        """In the order of their numbers."""
        found = sorted(versions_named(self._client, self.name), key=lambda version: int(version.version))
        return [(version, line_of(version.tags.get(_LINE, "").encode())) for version in found]

    def _mark(self) -> Mark | None:
        found = self._client.search_registered_models(f"name={quoted(self._of)}")
        return mark_of(str(found[0].tags.get(_MARK, ""))) if found else None

    def _model(self) -> object:
        return next(iter(self._client.search_registered_models(f"name={quoted(self.name)}")), None)

    def _make(self) -> None:
        from mlflow.exceptions import MlflowException

        said = f"The log of releases of {self._of}, written by the workbench: `workbench releases {self._of}`"
        try:
            self._client.create_registered_model(self.name, description=said)
        except MlflowException:
            if self._model() is None:  # it was not another command that was quicker
                raise


def counted(entries: Sequence[tuple[ModelVersion, Line]]) -> list[tuple[ModelVersion, Line]]:
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
        page: Any = client.search_model_versions(f"name={quoted(name)}", page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def quoted(name: str) -> str:
    return f'"{name}"' if "'" in name else f"'{name}'"


def _sentence(release: Release) -> str:
    """For the registry's page."""
    before, after = ("none" if n is None else str(n) for n in (release.champion_before, release.champion_after))
    champion = f"champion {before} -> {after}" if before != after else f"champion stays {after}"
    words = [f"{release.act} of version {release.version}", champion, release.verdict, release.reason[:500]]
    return ", ".join(filter(None, words))
