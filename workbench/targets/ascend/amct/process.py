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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.targets.apart import run_apart
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

    def components(self) -> dict[str, str]:
        """Name → version, for a toolchain or a record's provenance."""
        return {
            name if name == "amct_onnx" else f"amct_onnx.{name}": version for name, version in self.versions.items()
        }


def ask(
    python: Path,
    variables: Mapping[str, str],
    folder: Path,
    request: Mapping[str, Any],
    *,
    timeout_s: float,
    log: Path,
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
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    environment = {"OMP_NUM_THREADS": str(min(os.cpu_count() or 1, _THREADS)), **compiler_variables(variables)}
    try:
        ended = run_apart(
            [str(python), str(_CHILD), str(folder)],
            environment=environment,
            timeout_s=timeout_s,
            cwd=folder,
            log=folder / LOG,
        )
    except OSError as error:
        raise ToolchainError(
            f"{python} cannot be started: {error.strerror}. WORKBENCH_AMCT_PYTHON names the interpreter that has "
            "amct_onnx."
        ) from error
    _keep_log(folder, log)
    answer = None
    with contextlib.suppress(OSError, ValueError):
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    answer = answer if isinstance(answer, dict) else None
    if ended.code == 0 and answer is not None and answer.get("ok") is True:
        return answer
    raise _failure(python, folder, ended.code, answer, ended.output, timeout_s, log)


def write_feeds(batches: Iterable[Feeds], folder: Path, name: str) -> dict[str, Any]:
    """Store batches as NPZ files of plain arrays below `folder/name`; what the request says of them.

    Raises:
        CalibrationError: batches of different inputs, or arrays of Python objects.
    """
    (folder / name).mkdir()
    names: list[str] | None = None
    files = []
    for index, feeds in enumerate(batches):
        names = sorted(feeds) if names is None else names
        if sorted(feeds) != names:
            raise CalibrationError(f"batch {index} feeds {sorted(feeds)}, the first one fed {names}.")
        arrays = [np.asarray(feeds[each]) for each in names]
        if held := [each for each, array in zip(names, arrays, strict=True) if array.dtype.hasobject]:
            raise CalibrationError(f"input {held[0]!r} of batch {index} is an array of Python objects.")
        np.savez(folder / name / f"{index:06d}.npz", *arrays)
        files.append(f"{name}/{index:06d}.npz")
    return {"names": names or [], "files": files}


# --- how it ended --------------------------------------------------------------------------------------------------


def _keep_log(folder: Path, log: Path) -> None:
    """The child's words, then the logs that AMCT wrote into its working folder."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as whole:
        for part in [folder / LOG, *sorted((folder / "amct_log").glob("*.log"))]:
            if part.is_file():
                whole.write(f"==== {part.name}\n".encode())
                with part.open("rb") as words:
                    shutil.copyfileobj(words, whole)


def _failure(
    python: Path,
    folder: Path,
    code: int | None,
    answer: Mapping[str, Any] | None,
    output: str,
    timeout_s: float,
    log: Path,
) -> ToolchainError | CalibrationError:
    try:
        stage = (folder / "stage").read_text(encoding="utf-8")
    except OSError:
        stage = ""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("----")]
    last = lines[-1][:300] if lines else "it said nothing"
    said = str(answer["error"]) if answer is not None and "error" in answer else last
    if code is None:
        if stage in ("", "import"):
            return ToolchainError(f"importing amct_onnx in {python} took longer than {timeout_s:.0f} s. See {log}.")
        return CalibrationError(f"AMCT's {stage} took longer than {timeout_s:.0f} s.", log_path=log, transient=True)
    if code < 0:
        number = -code
        name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
        crashed = number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)
        if stage in ("", "import"):
            remedy = _SEGFAULT if crashed else "Try again; see the machine's memory."
            return ToolchainError(f"{python} died of {name} while it imported amct_onnx. {remedy} See {log}.")
        if crashed:
            return CalibrationError(f"AMCT crashed ({name}) in {stage}.", log_path=log)
        return CalibrationError(
            f"AMCT was ended by {name} in {stage}; the machine may be out of memory. Use smaller batches, or hfmg.",
            log_path=log,
            transient=True,
        )
    if stage in ("", "import"):
        remedy = remedy_for(said + "\n" + output) or "Try `import amct_onnx` in it."
        return ToolchainError(f"amct_onnx cannot be used in {python}: {said}. {remedy} See {log}.")
    if answer is None:
        return CalibrationError(
            f"amct_onnx ended in {stage} with status {code} and without an answer: {said}", log_path=log
        )
    if re.search("no opset import for domain|undefined symbol.*registercustomops", said.lower()):
        return ToolchainError(f"amct_onnx in {python} has no operator library: {said}. {remedy_for(said)} See {log}.")
    if answer.get("kind") == "MemoryError" or "bad_alloc" in said:
        return CalibrationError(
            f"AMCT ran out of memory in {stage}: IFMR keeps the activations of all batches. Use fewer or smaller "
            "batches, or hfmg.",
            log_path=log,
        )
    return CalibrationError(f"AMCT's {stage} failed: {said}", log_path=log)


def remedy_for(words: str) -> str | None:
    """What to do about a broken installation, by what it says."""
    return next((remedy for pattern, remedy in REMEDIES if re.search(pattern, words.lower())), None)


# --- where amct_onnx is installed: it has an interpreter of its own (amct.md §1.6) -----------------------------------


VARIABLE = "WORKBENCH_AMCT_PYTHON"
_TIMEOUT_S = 120.0


def find_amct(environment: Mapping[str, str], *, timeout_s: float = _TIMEOUT_S) -> AmctInstallation | None:
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
        try:
            answer = ask(python, environment, folder, {"action": "describe"}, timeout_s=timeout_s, log=log)
        except CalibrationError as error:  # past the import there is nothing to do: it is the installation
            raise ToolchainError(f"{python} does not tell the version of its amct_onnx: {error}") from error
        except ToolchainError as error:
            words = log.read_text(encoding="utf-8", errors="replace")[-2000:] if log.is_file() else ""
            message = str(error).replace(f" See {log}.", "")
            raise ToolchainError(f"{message}\n{words}".strip()) from error
    return AmctInstallation(python=python, versions=answer["versions"], variables=dict(environment))
