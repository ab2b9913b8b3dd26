"""Operator tuning by the vendor's AOE (atc.md §9): it times kernels on the device, and keeps the best in a bank.

Whether it tunes for offline inference on Atlas A2 the vendor's pages contradict each other on, so that what AOE itself
answers is told.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from workbench.graph.read import read_model
from workbench.targets.apart import run_apart
from workbench.targets.ascend.atc.atc import argument_vector, place_model, work_directory
from workbench.targets.ascend.atc.command import compile_flags, shapes_of
from workbench.targets.ascend.flags import BANK
from workbench.targets.ascend.installation import compiler_variables, tool_of
from workbench.targets.ascend.interface import interface_of
from workbench.targets.ascend.om_set import write_config_files
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.ascend.toolchain import DEFAULT_BANK, ascend_toolchain
from workbench.values.candidate import Candidate
from workbench.values.documents.input_files import folder_digest
from workbench.values.errors import CompileError, ToolchainError

TIMEOUT_S = 6 * 3600.0
_DONE = "Aoe process finished"
_ATC_ONLY = ("soc_version", "log", "display_model_info", BANK)
"""Flags of ATC that AOE is not told: it asks the device which chip it is [inferred]."""


def tuned(lowered: Path | None, candidate: Candidate, bank: Path, report: Callable[[str], None]) -> Candidate:
    """Fill a bank for every shape that the candidate compiles; returns the candidate with it.

    Args:
        lowered: None takes the bank as it is.
        bank: folder for it; made when missing. One that holds a bank is added to.
        report: told what is tuned.

    Raises:
        ToolchainError: there is no AOE.
        CompileError: it does not tune; the message has its own words.
        ConfigError: no folder, or an empty one.
    """
    settings = AscendCompile.of(candidate)
    if lowered is not None:
        _fill(lowered, candidate, settings, bank, report)
    # the content of the folder is part of the candidate's key
    options = {**dict(settings.options), BANK: f"{bank.resolve()}@{folder_digest(bank)}"}
    return replace(candidate, compile=replace(settings, options=tuple(sorted(options.items()))))


def _fill(
    lowered: Path, candidate: Candidate, settings: AscendCompile, bank: Path, report: Callable[[str], None]
) -> None:
    roots = filter(None, [os.environ.get("ASCEND_HOME_PATH")])
    # [inferred] where the toolkit has it
    if (aoe := tool_of("aoe", os.environ, *map(Path, roots), below=("bin", "tools/aoe/bin"))) is None:
        raise ToolchainError(
            "No aoe on PATH, nor below ASCEND_HOME_PATH. It comes with the CANN toolkit, and runs on a machine with "
            "the card: source its set_env.sh there. A bank that was filled elsewhere is taken as it is (--bank FOLDER)."
        )
    aoe = aoe.absolute()
    bank.mkdir(parents=True, exist_ok=True)
    chip = ascend_toolchain().device
    with work_directory(bank.parent, "aoe") as root:
        interface, model = interface_of(read_model(lowered)), place_model(lowered, root)
        files = write_config_files(settings, root)
        for shape in shapes_of(settings, interface):
            report(f"tuning {shape.name} with {aoe}")
            flags = compile_flags(
                candidate, shape, interface, soc_version=chip, model=model, output=root / shape.name, files=files
            )
            log = bank.parent / f"aoe-{shape.name}.log"
            if said := _run(aoe, flags, root, bank, log):
                raise CompileError(
                    f"AOE did not tune {shape.name} on this {chip}: it {said}. The vendor's pages contradict each "
                    "other on whether it tunes for this chip (docs/ascend.md, Tuning operators). A bank that was "
                    "filled elsewhere is taken: compile.op_bank_path in the search space.",
                    log_path=log,
                )


def _run(aoe: Path, flags: Mapping[str, str], root: Path, bank: Path, log: Path) -> str:
    """Tune one model into the bank; '' where that is done, else what happened instead, behind a subject."""
    home = root / "home"  # of its own: a bank in AOE's usual place would be part of every other key
    made = home / DEFAULT_BANK
    made.mkdir(parents=True, exist_ok=True)
    known = {name: value for name, value in flags.items() if name not in _ATC_ONLY}
    environment = {**compiler_variables(os.environ), "HOME": str(home)}
    command = [str(aoe), "--job_type=2", *argument_vector(known)]
    ended = run_apart(command, environment=environment, timeout_s=TIMEOUT_S, log=log, cwd=root)
    if ended.code != 0:
        return ended.words
    if _DONE not in ended.output:
        return f"ended with exit code 0 and without {_DONE!r}: {(ended.output.strip().splitlines() or ['nothing'])[-1]}"
    filled = [chip for chip in made.iterdir() if any(chip.rglob("*"))]
    for chip in filled:
        shutil.copytree(chip, bank, dirs_exist_ok=True)
    return "" if filled else "finished, and left no bank: it found nothing that is quicker"
