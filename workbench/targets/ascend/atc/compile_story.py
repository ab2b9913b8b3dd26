"""What ATC told while it compiled a set of files: which fusions took effect, memory, warnings; kept beside the files.

It explains a result and is no part of it: artifacts are equal without it. Fusion passes are told by its
fusion_result.json, sizes and versions by what it prints after a compile, or with --mode=6 (ge v8.5.0
api/atc/omg.cc:893-975).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.targets.ascend.config_files import FUSION_GROUPS
from workbench.values.documents.canonical import added_later, canonical_json, decode
from workbench.values.documents.json_reader import loads
from workbench.values.system.files import temporary_beside

FUSION_RESULT = "fusion_result.json"
STORY = "compile.json"
OF_ONE_FILE = ".story.json"
"""End of the name of a story that tells of one file of a set alone, behind the file's own without `.om`."""

_FIELD = re.compile(r"\b([a-z_]+)\[\s*([^\]]*?)\s*\]")
_START = "Display Model Info start"
_END = "Display Model Info end"
_GROUPS: tuple[tuple[Literal["graph", "ub"], str], ...] = (("graph", "graph_fusion"), ("ub", "ub_fusion"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OmInfo:
    """One compiled file.

    Attributes:
        memory_size_bytes, weight_size_bytes: device memory for work and for weights; needs no device to know.
        atc_version: the compiler's; a file runs on the same or a newer CANN.
    """

    memory_size_bytes: int
    weight_size_bytes: int
    stream_num: int | None = None
    event_num: int | None = None
    atc_version: str = ""
    soc_version: str = ""
    modeldef_size_bytes: int | None = None
    weight_data_size_bytes: int | None = None
    tbe_kernels_size_bytes: int | None = None
    task_info_size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """One pass in one compile.

    Attributes:
        matched, effective: how often its pattern was found, and how often it changed the graph.
    """

    name: str
    group: Literal["graph", "ub"]
    matched: int
    effective: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStory:
    """Attributes:
    fusions: passes that matched in the compile of the largest shape; empty where ATC left no report.
    info: file → what ATC tells about it; files it told nothing about are absent.
    warnings: ATC's, each once, with its code.
    seconds: file → wall time of its compile.
    form: of the file for the largest shape, what decides its time (`om_json.form_in`).
    """

    fusions: tuple[Fusion, ...]
    info: Mapping[str, OmInfo]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
    form: str = added_later("")


def write_story(story: CompileStory, to: Path, name: str = STORY) -> None:
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


def parse_info(text: str) -> OmInfo | None:
    """The block in what ATC printed; None where there is none, or it lacks the two memory sizes."""
    start = text.find(_START)
    if start < 0:
        return None
    end = text.find(_END, start)
    fields = dict(_FIELD.findall(text[start : end if end >= 0 else None]))
    memory, weight = _number(fields, "memory_size"), _number(fields, "weight_size")
    if memory is None or weight is None:
        return None
    return OmInfo(
        memory_size_bytes=memory,
        weight_size_bytes=weight,
        stream_num=_number(fields, "stream_num"),
        event_num=_number(fields, "event_num"),
        atc_version=fields.get("atc_version", ""),
        soc_version=fields.get("soc_version", ""),
        modeldef_size_bytes=_number(fields, "modeldef_size"),
        weight_data_size_bytes=_number(fields, "weight_data_size"),
        tbe_kernels_size_bytes=_number(fields, "tbe_kernels_size"),
        task_info_size_bytes=_number(fields, "task_info_size"),
    )


def _number(fields: dict[str, str], name: str) -> int | None:
    found = re.match(r"\d+", fields.get(name, ""))
    return int(found[0]) if found else None


def read_fusions(file: Path) -> tuple[Fusion, ...]:
    """Every pass that matched something, by group and name; all graphs of the file together.

    Passes that matched nothing and passes that were switched off are both absent: the file does not tell them apart
    (ge v8.5.0 fusion_statistic_writer.cc).

    Raises:
        OSError, ValueError: missing, or not of that form.
    """
    matched: Counter[tuple[Literal["graph", "ub"], str]] = Counter()
    effective: Counter[tuple[Literal["graph", "ub"], str]] = Counter()
    for graph in _graphs(loads(file.read_bytes(), once=False)):
        for group, key in _GROUPS:
            for name, counts in graph.get(key, {}).items():
                try:
                    matched[group, name] += int(counts["match_times"])
                    effective[group, name] += int(counts["effect_times"])
                except (TypeError, KeyError) as error:
                    raise ValueError(f"{file}: {name} has no counts: {counts!r}") from error
    return tuple(
        Fusion(name=name, group=group, matched=matched[group, name], effective=effective[group, name])
        for group, name in sorted(matched)
    )


def _graphs(data: Any) -> Iterator[dict[str, Any]]:
    """The objects that hold the counts: values of `session_and_graph_id_<a>_<b>` in 8.5; a list before it."""
    entries = data if isinstance(data, list) else [data]
    for entry in entries:
        if not isinstance(entry, dict):
            raise ValueError(f"fusion results are an object, not {type(entry).__name__}")
        if any(key in entry for _, key in _GROUPS):
            yield entry
        else:
            for key, graph in entry.items():
                if not isinstance(graph, dict):
                    raise ValueError(f"fusion results: {key} is no object")
                yield graph
