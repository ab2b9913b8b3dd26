"""Where the OM goes, and how it and what lies beside it are written (atc.md §4.4, §6)."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.folding import Constants
from workbench.cann_emulator.atc.fusion import Counts
from workbench.cann_emulator.om import Kernel
from workbench.values.documents.canonical import canonical_json

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


def write_kernel_meta(options: Mapping[str, str], kernels: Iterable[Kernel]) -> None:
    """What --op_debug_level keeps of the operators' compilation, in ./kernel_meta or --debug_dir: here one .json for
    each kernel; there is no object file to keep.

    Raises:
        AtcFailure: E10001, the folder or a file cannot be made.
    """
    if options.get("op_debug_level", "0") == "0":
        return
    folder = Path(options["debug_dir"]) if options.get("debug_dir") else Path("kernel_meta")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise failure("E10001", parameter="file parameter", value=str(folder), reason=str(error.strerror)) from error
    for kernel in kernels:
        if kernel.core in ("cube", "vector", "mix"):
            text = canonical_json({"emulated": True, "kernel": kernel})
            stem = f"te_{kernel.op_type.lower()}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
            write_file(str(folder / f"{stem}.json"), f"{text}\n".encode())


def write_weights(path: str, constants: Constants, names: list[str]) -> None:
    """`--external_weight=1`: every constant beside the OM as weight/weight_<hash of its bytes>.

    Raises:
        AtcFailure: E10001, the folder or a file cannot be made.
    """
    folder = Path(path).parent / "weight"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise failure("E10001", parameter="file parameter", value=str(folder), reason=str(error.strerror)) from error
    for name in names:
        content = constants[name].tobytes()
        write_file(str(folder / f"weight_{hashlib.sha256(content).hexdigest()}"), content)


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
