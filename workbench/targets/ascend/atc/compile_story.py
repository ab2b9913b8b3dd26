"""What ATC told while it compiled a set of files: which fusions took effect, memory, warnings; kept beside the files.

It explains a result and is no part of it: artifacts are equal without it. Fusion passes are told by its
fusion_result.json, sizes by what it prints after a compile (ge v8.5.0 api/atc/omg.cc:893-975).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.targets.ascend.config_files import FUSION_GROUPS
from workbench.values.documents.canonical import canonical_json
from workbench.values.documents.json_reader import loads
from workbench.values.system.files import temporary_beside

FUSION_RESULT = "fusion_result.json"
_WHOLE = "compile.json"
"""What older versions wrote for a set; now each file has its own, named as it is with another end."""
_OF_ONE_FILE = ".story.json"

_SIZES = re.compile(r"\b(memory_size|weight_size)\[\s*(\d+)")
_START = "Display Model Info start"
_KINDS = ("graph_fusion", "ub_fusion")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStory:
    """Attributes:
    fusions: pass → how often it changed the graph, in the compile of the largest shape; empty without a report.
    info: file → device memory for work and for weights, in bytes; files that ATC told nothing about are absent.
    warnings: ATC's, each once, with its code.
    seconds: file → wall time of its compile.
    form: of the file for the largest shape, what decides its time (`om_json.form_in`).
    """

    fusions: Mapping[str, int]
    info: Mapping[str, tuple[int, int]]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
    form: str = ""


def write_story(story: CompileStory, om: Path) -> None:
    """Beside the file that it tells of."""
    written = {
        "fusions": [{"name": name, "effective": count} for name, count in story.fusions.items()],
        "info": {file: {"memory_size_bytes": m, "weight_size_bytes": w} for file, (m, w) in story.info.items()},
        **{key: getattr(story, key) for key in ("warnings", "seconds", "form")},
    }
    with temporary_beside(om.with_suffix(_OF_ONE_FILE), durable=False) as draft:
        draft.write_text(canonical_json(written), encoding="utf-8")


def read_story(directory: Path) -> CompileStory | None:
    """That of the set, or those of its files as one, the fusions of the largest; None where the files were compiled
    elsewhere, or before this was kept."""
    whole = directory / _WHOLE
    by_shape = sorted(directory.glob(f"*{_OF_ONE_FILE}"), key=lambda one: [*map(int, re.findall(r"\d+", one.name))])
    files = [whole] if whole.exists() else by_shape
    if not files:
        return None
    parts = [loads(file.read_bytes()) for file in files]
    sizes = [(name, told) for part in parts for name, told in part["info"].items()]
    return CompileStory(
        fusions={one["name"]: one["effective"] for one in parts[-1]["fusions"] if one["effective"]},
        info={name: (told["memory_size_bytes"], told["weight_size_bytes"]) for name, told in sizes},
        warnings=tuple(dict.fromkeys(warning for part in parts for warning in part["warnings"])),
        seconds={name: seconds for part in parts for name, seconds in part["seconds"].items()},
    )


def known_form(om: Path) -> str:
    """What decides the time of a file, as it was found when that was compiled; empty where nobody looked."""
    file = om.with_suffix(_OF_ONE_FILE)
    return str(loads(file.read_bytes()).get("form", "")) if file.exists() else ""


def story_text(story: CompileStory) -> str:
    """For the terminal: what a sweep should and should not toggle for this model, and what the files need."""
    lines, idle, others = [], [], dict(story.fusions)
    for name, group in FUSION_GROUPS.items():
        took = [f"{one} {others.pop(one)}x" for one in (*group.graph, *group.ub) if one in others]
        if took:
            lines.append(f"fusion group {name}: {', '.join(took)}")
        else:
            idle.append(name)
    if story.fusions:
        lines.append(f"no effect on this model, switched off, or unknown to this ATC: {', '.join(idle)}")
    if others:
        lines.append(f"other passes with an effect: {', '.join(others)}")
    for name, (memory, weights) in story.info.items():
        lines.append(
            f"{name}: {memory / 1e6:.1f} MB of work memory, {weights / 1e6:.1f} MB of weights, compiled in "
            f"{story.seconds.get(name, 0.0):.1f} s"
        )
    lines += [f"ATC warns: {warning}" for warning in story.warnings]
    return "\n".join(lines)


def sizes_in(text: str) -> tuple[int, int] | None:
    """Bytes of work memory and of weights, in what ATC printed; None where it did not tell both."""
    found = {name: int(size) for name, size in _SIZES.findall(text[max(0, text.find(_START)) :])}
    return (found["memory_size"], found["weight_size"]) if len(found) == 2 else None


def read_fusions(file: Path) -> dict[str, int]:
    """Pass → how often it changed a graph, by name; all graphs of the file together.

    Passes that matched nothing and passes that were switched off are both absent: the file does not tell them apart
    (ge v8.5.0 fusion_statistic_writer.cc).

    Raises:
        OSError, ValueError: missing, or not of that form.
    """
    effective: Counter[str] = Counter()
    try:
        data = loads(file.read_bytes(), once=False)
        # objects hold the counts: values of `session_and_graph_id_<a>_<b>` in 8.5; a list of them before it
        for entry in data if isinstance(data, list) else [data]:
            for graph in [entry] if any(kind in entry for kind in _KINDS) else entry.values():
                for name, counts in (pair for kind in _KINDS for pair in graph.get(kind, {}).items()):
                    effective[name] += int(counts["effect_times"])
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{file}: no counts of fusion passes: {error!r}") from error
    return {name: count for name, count in sorted(effective.items()) if count}
