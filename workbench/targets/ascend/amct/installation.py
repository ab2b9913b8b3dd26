"""Where amct_onnx is installed, and with which versions: it has an interpreter of its own (amct.md §1.6)."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from workbench.targets.ascend.amct.process import LOG, AmctInstallation, ask
from workbench.values.errors import CalibrationError, ToolchainError
from workbench.values.system.scratch import scratch_folder

VARIABLE = "WORKBENCH_AMCT_PYTHON"
_TIMEOUT_S = 120.0


def amct_is_named(environment: Mapping[str, str]) -> bool:
    """Whether there is something that `find_amct` would ask."""
    return bool(environment.get(VARIABLE)) or importlib.util.find_spec("amct_onnx") is not None


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
