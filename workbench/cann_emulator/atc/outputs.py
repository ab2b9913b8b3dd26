"""Where the OM goes, and how it and what lies beside it are written (atc.md §4.4, §6)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.fusion import Counts

_MODE = 0o600
_NEVER = "0"


def om_path(output: str, options: Mapping[str, str], *, dynamic: bool) -> str:
    """`<output>.om`, whatever the output ends in; of a dynamic-shape model with `_<os>_<arch>` before the first `.om`
    of the whole path, folders included (ge v8.5.0 base/common/helper/model_helper.cc:514-542)."""
    path = f"{output}.om"
    if not dynamic:
        return path
    system = options.get("host_env_os") or platform.system().lower()
    cpu = options.get("host_env_cpu") or platform.machine()
    return path.replace(".om", f"_{system}_{cpu}.om", 1)


def write_file(path: str, content: bytes) -> None:
    """Truncates an existing file, keeping its mode; a new one is the owner's alone (base/common/helper/file_saver.cc).

    Raises:
        AtcFailure: E10001, the file cannot be opened: found here, after all the work.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    except OSError as error:
        raise failure("E10001", parameter="file parameter", value=path, reason=str(error.strerror)) from error
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


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
