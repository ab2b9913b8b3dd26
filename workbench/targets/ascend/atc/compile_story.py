"""What ATC told while it compiled a set of files: which fusions took effect, memory, warnings; kept beside the files.

It explains a result and is no part of it: artifacts are equal without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.targets.ascend.atc.om_info import OmInfo
from workbench.targets.ascend.atc.passes import Fusion
from workbench.targets.ascend.om_set import CompiledSet
from workbench.targets.ascend.settings import FUSION_GROUPS
from workbench.values.documents.canonical import added_later, canonical_json, decode
from workbench.values.documents.json_reader import loads
from workbench.values.system.files import temporary_beside

STORY = "compile.json"
OF_ONE_FILE = ".story.json"
"""End of the name of a story that tells of one file of a set alone, behind the file's own without `.om`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStory:
    """See `CompiledSet`, whose attributes these are."""

    fusions: tuple[Fusion, ...]
    info: Mapping[str, OmInfo]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
    form: str = added_later("")


def write_story(compiled: CompiledSet, to: Path, name: str = STORY) -> None:
    story = CompileStory(
        fusions=compiled.fusions,
        info=compiled.info,
        warnings=compiled.warnings,
        seconds=compiled.seconds,
        form=compiled.form,
    )
    with temporary_beside(to / name, durable=False) as draft:
        draft.write_text(canonical_json(story), encoding="utf-8")


def read_story(directory: Path) -> CompileStory | None:
    """That of the set, or those of its files as one, the fusions of the largest; None where the files were compiled
    elsewhere, or before this was kept."""
    file = directory / STORY
    if file.exists():
        return _read(file)
    parts = [_read(part) for part in sorted(directory.glob(f"*{OF_ONE_FILE}"), key=_by_shape)]
    if not parts:
        return None
    return CompileStory(
        fusions=parts[-1].fusions,
        info={name: info for part in parts for name, info in part.info.items()},
        warnings=tuple(dict.fromkeys(warning for part in parts for warning in part.warnings)),
        seconds={name: seconds for part in parts for name, seconds in part.seconds.items()},
    )


def known_form(directory: Path, om: str) -> str:
    """What decides the time of a file, as it was found when that was compiled; empty where nobody looked."""
    file = directory / f"{om.removesuffix('.om')}{OF_ONE_FILE}"
    return _read(file).form if file.exists() else ""


def _read(file: Path) -> CompileStory:
    return decode(CompileStory, loads(file.read_bytes()))


def _by_shape(file: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", file.name)], file.name


def story_text(story: CompileStory) -> str:
    """For the terminal: what a sweep should and should not toggle for this model, and what the files need."""
    lines = []
    took = groups_with_effect(story.fusions)
    idle = [name for name in FUSION_GROUPS if name not in took]
    for name, passes in took.items():
        lines.append(f"fusion group {name}: {', '.join(f'{p} {count}x' for p, count in passes.items())}")
    if story.fusions:
        lines.append(f"no effect on this model, switched off, or unknown to this ATC: {', '.join(idle)}")
        known = {p for passes in took.values() for p in passes}
        others = [f.name for f in story.fusions if f.effective and f.name not in known]
        if others:
            lines.append(f"other passes with an effect: {', '.join(others)}")
    for name, info in story.info.items():
        lines.append(
            f"{name}: {info.memory_size_bytes / 1e6:.1f} MB of work memory, {info.weight_size_bytes / 1e6:.1f} MB of "
            f"weights, compiled in {story.seconds.get(name, 0.0):.1f} s"
        )
    lines += [f"ATC warns: {warning}" for warning in story.warnings]
    return "\n".join(lines)


def groups_with_effect(fusions: Iterable[Fusion]) -> dict[str, dict[str, int]]:
    """Group → its passes that changed the graph, with how often; groups without any are absent."""
    counts = {fusion.name: fusion.effective for fusion in fusions if fusion.effective}
    found = {
        name: {p: counts[p] for p in (*group.graph, *group.ub) if p in counts} for name, group in FUSION_GROUPS.items()
    }
    return {name: passes for name, passes in found.items() if passes}
