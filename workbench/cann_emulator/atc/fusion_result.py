"""fusion_result.json: which passes matched, and how often (atc.md §4.4)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from workbench.cann_emulator.atc.fusion import Counts

_NEVER = "0"


def result_path() -> Path:
    """In the current directory, or $ASCEND_WORK_PATH/FE/<pid>."""
    work = os.environ.get("ASCEND_WORK_PATH")
    return (Path(work) / "FE" / str(os.getpid()) if work else Path()) / "fusion_result.json"


def forget_earlier_result() -> None:
    """The engine deletes a file of an earlier run when it starts; a run that fails before that leaves it."""
    result_path().unlink(missing_ok=True)


def write_result(options: Mapping[str, str], graph: Counts, ub: Counts) -> None:
    """One object for the compiled graph; passes that are off or matched nothing are absent. Its two numbers are 0
    [inferred for a run that compiles one graph]."""
    if options.get("export_compile_stat") == _NEVER:
        return
    content = {
        "session_and_graph_id_0_0": {
            "graph_fusion": {name: _times(counts) for name, counts in sorted(graph.items())},
            "ub_fusion": {name: {**_times(counts), "repository_hit_times": "0"} for name, counts in sorted(ub.items())},
        }
    }
    path = result_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")


def _times(counts: tuple[int, int]) -> dict[str, str]:
    return {"effect_times": str(counts[1]), "match_times": str(counts[0])}
