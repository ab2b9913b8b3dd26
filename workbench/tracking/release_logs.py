"""Where the log of releases is, and how the aliases follow it.

A line of the log is the one write by which champion moves; the aliases follow. Whoever wrote the last move sets them
and then says so, and whoever finds that missing does it.

Each line is a version of the registered model NAME.releases. A server gives no lock, but it numbers versions, each
number once. So two who append at once get two numbers, and of lines that follow the same line the first counts: whoever
finds his own behind another's was overtaken, has changed nothing, and looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.tracking import releases
from workbench.tracking.releases import Line, Log, Mark, Release, checked, end_of, line_of, mark_of
from workbench.tracking.server import insisted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

_LINE, _MOVED = "line", "moved"
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
    """The lines of one model's log. Call its methods inside `mlflow_errors`.

    Args:
        kept: lines of an earlier workbench, which come before those of the registry.
    """

    def __init__(self, client: MlflowClient, model: str, kept: Sequence[Line] = ()) -> None:
        self._client, self._of, self._kept = client, model, kept
        self.name = f"{model}.releases"

    def read(self) -> Log:
        """Every line, checked."""
        found = self._versions()
        entries = self._counted(found)
        log = checked([*self._kept, *(line for _, line in entries)], self._mark())
        return replace(log, overtaken=len(found) - len(entries))

    def end(self) -> Mark:
        """What the next line has to follow."""
        return end_of([*self._kept, *(line for _, line in self._counted(self._versions()))], self._mark())

    def append(self, release: Release, end: Mark) -> Mark:
        """Add a line behind `end`; returns the new end.

        Raises:
            Overtaken: it is not the end any more.
        """
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
        if mine not in {line.sha256 for _, line in self._counted(self._versions())}:
            raise Overtaken
        known, mark = self._mark(), Mark(number=end.number + 1, sha256=mine)
        if known is None or known.number < mark.number:
            insisted(lambda: self._client.set_registered_model_tag(self._of, _MARK, str(mark)))
        return mark

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
                self._say_settled(str(last.entry))
                return f"set the aliases for the change of champion to version {last.champion}, not done until now"
            last = now

    def _say_settled(self, entry: str) -> None:
        insisted(lambda: self._client.set_model_version_tag(self.name, entry, _MOVED, "true"))

    def last_move(self) -> Move | None:
        """None where there is none, or an earlier workbench made it and set the aliases itself."""
        for version, line in reversed(self._counted(self._versions())):
            said = (line.content or {}).get("release", {})
            before, after = said.get("champion_before"), said.get("champion_after")
            if said.get("act") == "recovery":  # earlier workbenches wrote so what stood in the end
                return None
            if isinstance(after, int) and before != after:
                previous = said.get("previous_after")  # whoever may write to the log wrote it
                previous = previous if isinstance(previous, int) else None
                settled = version.tags.get(_MOVED) == "true"
                return Move(entry=int(version.version), champion=after, previous=previous, settled=settled)
        return None

    def _mark(self) -> Mark | None:
        model = model_of(self._client, self._of)
        return mark_of("" if model is None else str(model.tags.get(_MARK, "")))

    def _versions(self) -> list[tuple[ModelVersion, Line]]:
        found = sorted(versions_named(self._client, self.name), key=lambda version: int(version.version))
        return [(version, line_of(version.tags.get(_LINE, "").encode())) for version in found]

    def _counted(self, entries: Sequence[tuple[ModelVersion, Line]]) -> list[tuple[ModelVersion, Line]]:
        """Without those that were overtaken."""
        followed = {str((line.content or {}).get("before", "")) for line in self._kept}
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
