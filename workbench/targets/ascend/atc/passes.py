"""Which fusion passes took part in a compile: ATC's fusion_result.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.values.documents.json_reader import loads

FUSION_RESULT = "fusion_result.json"

_GROUPS: tuple[tuple[Literal["graph", "ub"], str], ...] = (("graph", "graph_fusion"), ("ub", "ub_fusion"))


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
