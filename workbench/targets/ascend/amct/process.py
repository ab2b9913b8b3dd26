"""Starting amct_onnx in its own interpreter, and what its end means.

    request.json, model, feeds ─► python child.py FOLDER ─► answer.json, stage, log

Which error a failure becomes depends on how far the child came: until it has imported amct_onnx the installation is to
blame, afterwards this model and this configuration.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.targets.apart import Ended, run_apart
from workbench.targets.ascend.installation import compiler_variables
from workbench.targets.base import Feeds
from workbench.values.errors import CalibrationError, ToolchainError
from workbench.values.system.scratch import scratch_folder

LOG = "amct.log"
_CHILD = Path(__file__).with_name("child.py")
_THREADS = 16
"""AMCT's manual asks for OMP_NUM_THREADS on machines with many cores (amct.md §12)."""

REMEDIES: tuple[tuple[str, str], ...] = (
    (r"no module named '?amct_onnx", "Install amct_onnx-<version>-py3-none-linux_<arch>.whl from the CANN AMCT package "
     "into it, or name another interpreter in WORKBENCH_AMCT_PYTHON."),
    (r"now only support onnxruntime", "Install an onnxruntime it supports: 1.16.0 with onnx 1.14.0 and numpy below 2 "
     "(CANN 8.5), then build amct_onnx_op again."),
    (r"has no attribute 'sessionoption", "onnxruntime is not installed whole: reinstall it, one of onnxruntime and "
     "onnxruntime-gpu only."),
    (r"amct_so|registercustomops|amct_onnx_op|cannot open shared object|no opset import for domain",
     "Build its operator library for the installed onnxruntime: tar -zxf amct_onnx_op.tar.gz; cd amct_onnx_op; "
     "python3 setup.py build."),
    (r"descriptors cannot (not )?be created", "Install protobuf 3.20.2 or 3.20.3."),
    (r"no module named|importerror|attributeerror|oserror", "Install the versions that its manual pins: onnx 1.14.0, "
     "onnxruntime 1.16.0, numpy 1.21.6 to 1.26.4, protobuf 3.20.x (CANN 8.5)."),
)  # fmt: skip
"""What a broken installation says (amct.md §1.6, §12), in lower case, → what to do."""

_SEGFAULT = (
    "The headers it was built with do not match the installed onnxruntime (amct.md §1.6): put the five headers of "
    "exactly that version into amct_onnx_op/inc and run python3 setup.py build again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctInstallation:
    """An interpreter that imports amct_onnx, and what it has.

    Attributes:
        versions: of amct_onnx, onnx, onnxruntime, numpy and python; and 'emulator', what the module says of itself,
            where it is not the vendor's.
        variables: the environment to start it with.
    """

    python: Path
    versions: Mapping[str, str]
    variables: Mapping[str, str]


def ask(
    installation: AmctInstallation, folder: Path, request: Mapping[str, Any], *, timeout_s: float, log: Path
) -> dict[str, Any]:
    """Let the child do what a request says; its answer.

    Args:
        folder: holds the files that the request names; the child's own files appear there.
        log: everything the child and AMCT said, written in any case.

    Raises:
        ToolchainError: the interpreter cannot be started, or its amct_onnx not be imported or used.
        CalibrationError: AMCT refuses, crashes, or takes longer than `timeout_s`; with the log, and transient where
            it was killed.
    """
    python = installation.python
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    threads = {"OMP_NUM_THREADS": str(min(os.cpu_count() or 1, _THREADS))}
    try:
        ended = run_apart(
            [str(python), str(_CHILD), str(folder)],
            environment=threads | compiler_variables(installation.variables),
            timeout_s=timeout_s,
            cwd=folder,
            log=folder / LOG,
        )
    except OSError as error:
        raise ToolchainError(
            f"{python} cannot be started: {error.strerror}. WORKBENCH_AMCT_PYTHON names the interpreter that has "
            "amct_onnx."
        ) from error
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as whole:  # the child's words, then the logs that AMCT wrote into its working folder
        for part in [folder / LOG, *sorted((folder / "amct_log").glob("*.log"))]:
            whole.write(f"==== {part.name}\n".encode())
            with part.open("rb") as words:
                shutil.copyfileobj(words, whole)
    answer, stage = None, ""
    with contextlib.suppress(OSError):
        stage = (folder / "stage").read_text(encoding="utf-8")
    with contextlib.suppress(OSError, ValueError):
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    answer = answer if isinstance(answer, dict) else None
    if ended.code == 0 and answer is not None and answer.get("ok") is True:
        return answer
    lines = [line.strip() for line in ended.output.splitlines() if line.strip() and not line.startswith("----")]
    said = str((answer or {}).get("error") or (lines[-1][:300] if lines else "it said nothing"))
    if stage in ("", "import"):
        raise ToolchainError(f"{_broken(python, ended, said, timeout_s)} See {log}.")
    raise _failure(python, stage, ended, answer, said, timeout_s, log)


def write_feeds(batches: Iterable[Feeds], folder: Path, name: str) -> dict[str, Any]:
    """Store batches as NPZ files of plain arrays below a folder; what the request says of them."""
    (folder / name).mkdir()
    names: list[str] = []
    files = []
    for index, feeds in enumerate(batches):
        names, file = sorted(feeds), f"{name}/{index:06d}.npz"
        np.savez(folder / file, *(feeds[each] for each in names))
        files.append(file)
    return {"names": names, "files": files}


# --- how it ended --------------------------------------------------------------------------------------------------


_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)


def _signal(code: int) -> str:
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"


def _broken(python: Path, ended: Ended, said: str, timeout_s: float) -> str:
    """Of a child that did not come past the import."""
    if ended.code is None:
        return f"importing amct_onnx in {python} took longer than {timeout_s:.0f} s."
    if ended.code < 0:
        remedy = _SEGFAULT if -ended.code in _CRASHES else "Try again; see the machine's memory."
        return f"{python} died of {_signal(ended.code)} while it imported amct_onnx. {remedy}"
    remedy = _remedy(f"{said}\n{ended.output}") or "Try `import amct_onnx` in it."
    return f"amct_onnx cannot be used in {python}: {said}. {remedy}"


def _failure(
    python: Path, stage: str, ended: Ended, answer: Mapping[str, Any] | None, said: str, timeout_s: float, log: Path
) -> ToolchainError | CalibrationError:
    transient = False
    if ended.code is None:
        words, transient = f"AMCT's {stage} took longer than {timeout_s:.0f} s.", True
    elif ended.code < 0 and -ended.code in _CRASHES:
        words = f"AMCT crashed ({_signal(ended.code)}) in {stage}."
    elif ended.code < 0:
        transient = True
        words = (
            f"AMCT was ended by {_signal(ended.code)} in {stage}; the machine may be out of memory. Use smaller "
            "batches, or hfmg."
        )
    elif answer is None:
        words = f"amct_onnx ended in {stage} with status {ended.code} and without an answer: {said}"
    elif re.search("no opset import for domain|undefined symbol.*registercustomops", said.lower()):
        return ToolchainError(f"amct_onnx in {python} has no operator library: {said}. {_remedy(said)} See {log}.")
    elif answer.get("kind") == "MemoryError" or "bad_alloc" in said:
        words = (
            f"AMCT ran out of memory in {stage}: IFMR keeps the activations of all batches. Use fewer or smaller "
            "batches, or hfmg."
        )
    else:
        words = f"AMCT's {stage} failed: {said}"
    return CalibrationError(words, log_path=log, transient=transient)


def _remedy(words: str) -> str | None:
    """What to do about a broken installation, by what it says."""
    return next((remedy for pattern, remedy in REMEDIES if re.search(pattern, words.lower())), None)


# --- where amct_onnx is installed: it has an interpreter of its own (amct.md §1.6) -----------------------------------


VARIABLE = "WORKBENCH_AMCT_PYTHON"
_TIMEOUT_S = 120.0


def find_amct(environment: Mapping[str, str]) -> AmctInstallation | None:
    """The interpreter that WORKBENCH_AMCT_PYTHON names, or this one where it can import amct_onnx; None without both.

    Starts that interpreter once to ask for its versions, which takes a second or two: call it once and keep the answer.

    Raises:
        ToolchainError: the interpreter cannot be started, or its amct_onnx not be imported (with the remedy).
    """
    named = environment.get(VARIABLE)
    if named:
        place = shutil.which(named, path=environment.get("PATH"))
        if place is None:
            raise ToolchainError(
                f"{VARIABLE} is {named!r}, which is no program. Set it to the Python interpreter that has amct_onnx, "
                "or unset it."
            )
        # not resolved: a virtual environment is known by the path of its link
        python = Path(place).absolute()
    elif importlib.util.find_spec("amct_onnx") is not None:
        python = Path(sys.executable)
    else:
        return None
    with scratch_folder("amct") as folder:
        log = folder / f"kept-{LOG}"
        found = AmctInstallation(python=python, versions={}, variables=dict(environment))
        try:
            answer = ask(found, folder, {}, timeout_s=_TIMEOUT_S, log=log)
        except CalibrationError as error:  # past the import there is nothing to do: it is the installation
            raise ToolchainError(f"{python} does not tell the version of its amct_onnx: {error}") from error
        except ToolchainError as error:
            words = log.read_text(encoding="utf-8", errors="replace")[-2000:] if log.is_file() else ""
            message = str(error).replace(f" See {log}.", "")
            raise ToolchainError(f"{message}\n{words}".strip()) from error
    return replace(found, versions=answer["versions"])
