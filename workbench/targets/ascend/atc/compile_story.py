"""What ATC told while it compiled a set of files: which fusions took effect, memory, warnings; kept beside the files.

It explains a result and is no part of it: artifacts are equal without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.targets.ascend.atc.om_info import OmInfo
from workbench.targets.ascend.atc.passes import Fusion
from workbench.targets.ascend.om_set import CompiledSet
from workbench.targets.ascend.settings import FUSION_GROUPS
from workbench.values.documents.canonical import canonical_json, decode
from workbench.values.documents.json_reader import loads
from workbench.values.system.files import temporary_beside

STORY = "compile.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStory:
    """See `CompiledSet`, whose attributes these are."""

    fusions: tuple[Fusion, ...]
    info: Mapping[str, OmInfo]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]


def write_story(compiled: CompiledSet, to: Path) -> None:
    story = CompileStory(
        fusions=compiled.fusions, info=compiled.info, warnings=compiled.warnings, seconds=compiled.seconds
    )
    with temporary_beside(to / STORY, durable=False) as draft:
        draft.write_text(canonical_json(story), encoding="utf-8")


def read_story(directory: Path) -> CompileStory | None:
    """None where the files were compiled elsewhere, or before this was kept."""
    file = directory / STORY
    return decode(CompileStory, loads(file.read_bytes())) if file.exists() else None


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
