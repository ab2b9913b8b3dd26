"""The vendor's profiler and overflow check over one program."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.targets.apart import run_apart
from workbench.targets.ascend.acl.process import ACL_CONFIG, write_acl_config
from workbench.targets.ascend.atc.compile_story import read_story, story_text
from workbench.targets.ascend.atc.om_json import ask_om, operators_in
from workbench.targets.ascend.installation import find_installation
from workbench.targets.ascend.interface import INTERFACE
from workbench.targets.ascend.npu_smi import VARIABLE
from workbench.targets.ascend.overflow import overflow_text, read_overflows, suspects, way_on
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiles.tasks import kernel_us, read_tasks
from workbench.targets.profiler import KernelTime, Overflows
from workbench.values.artifact import Artifact
from workbench.values.device_profile import DeviceProfile
from workbench.values.errors import MeasureError, ToolchainError

TIMEOUT_S = 900.0
LOG = "msprof.log"


class AscendProfiler:
    """See `workbench.targets.profiler.Profiler`."""

    def where_time_goes(
        self,
        replay: Sequence[str],
        artifact: Artifact,
        directory: Path,
        to: Path,
        *,
        environment: Mapping[str, str],
    ) -> DeviceProfile:
        """By msprof; and what the compiler told of the files, where they were compiled here."""
        folders = run_msprof(replay, to, environment=environment)
        try:
            return _read(folders, artifact, directory)
        except MeasureError as error:
            raise MeasureError(f"{error} See what msprof said.", log_path=to / LOG) from error

    def read(self, folder: Path, artifact: Artifact, directory: Path) -> DeviceProfile:
        inside = sorted(one for one in folder.glob("PROF_*") if one.is_dir()) or [folder]
        return _read(inside, artifact, directory)

    def kernels(
        self,
        replay: Sequence[str],
        artifact: Artifact,
        directory: Path,
        to: Path,
        *,
        environment: Mapping[str, str],
    ) -> tuple[KernelTime, ...]:
        """By msprof, whose names of operators are those of ATC's JSON of the OM [inferred]."""
        (om,) = [directory / file.file for file in artifact.files if file.file != INTERFACE]
        tasks, _, _ = read_tasks(run_msprof(replay, to, environment=environment))
        took, origins = kernel_us(tasks), ask_om(om, operators_in)
        kernels = tuple(
            KernelTime(
                name=name,
                op_type=origins[name].op_type if name in origins else "",
                nodes=origins[name].nodes if name in origins else (),
                call_us=us,
            )
            for name, us in took.items()
        )
        if not any(kernel.nodes for kernel in kernels):
            raise MeasureError(
                f"None of the {len(kernels)} operators in msprof's table is one that ATC tells of {om.name}. "
                "Profile with --task-time=l1, which names them."
            )
        return kernels

    def overflows(
        self, replay: Sequence[str], calls: int, to: Path, *, environment: Mapping[str, str], once: bool = False
    ) -> Overflows:
        to.mkdir(parents=True, exist_ok=True)
        log = to / "run.log"
        surroundings = {**environment, ACL_CONFIG: str(write_acl_config(to, "overflow", {"dump_debug": "on"}))}
        ended = run_apart(replay, environment=surroundings, timeout_s=TIMEOUT_S, log=log)
        if ended.code != 0:
            raise MeasureError(f"the run with the overflow check {ended.words}", log_path=log)
        found = read_overflows(to / "overflow", find_installation().home, to / "decoded", once=once)
        return Overflows(text=overflow_text(found, calls), suspects=suspects(found))

    def way_on(self, nodes: Sequence[str]) -> str:
        return way_on(nodes)


def _read(folders: Iterable[Path], artifact: Artifact, directory: Path) -> DeviceProfile:
    """A profile, with what the compiler told of the files, where they were compiled here."""
    found, story = read_profile(folders, chip=artifact.toolchain.device), read_story(directory)
    told = () if story is None else tuple(story_text(story).splitlines())
    modelled = found.modelled or artifact.toolchain.emulated
    return replace(found, modelled=modelled, notes=(*found.notes, *told))


def run_msprof(
    application: Sequence[str],
    output: Path,
    *,
    environment: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
) -> list[Path]:
    """Run a program under msprof; the PROF_* folders it left. It runs slower than without: time nothing else.

    Args:
        application: argument list of the program.
        output: folder for the PROF_* results; made when missing. The log is `msprof.log` in it.

    Raises:
        ToolchainError: no msprof, or ASCEND_RT_VISIBLE_DEVICES is set, which it cannot work with.
        MeasureError: the program failed or took too long; carries the log.
    """
    program = shutil.which("msprof", path=environment.get("PATH", os.defpath))
    if program is None:
        raise ToolchainError("msprof is not on PATH. It comes with the CANN toolkit: source its set_env.sh.")
    if environment.get(VARIABLE):
        raise ToolchainError(f"msprof does not work while {VARIABLE} is set. Unset it and choose the device by number.")
    output.mkdir(parents=True, exist_ok=True)
    before = {folder.name for folder in output.glob("PROF_*")}
    log = output / LOG
    command = [program, f"--application={shlex.join(application)}", f"--output={output}", "--task-time=on"]
    ended = run_apart(command, environment=environment, timeout_s=timeout_s, log=log)
    if ended.code != 0:
        raise MeasureError(f"msprof {ended.words}", log_path=log, transient=ended.code is None)
    return [folder for folder in output.glob("PROF_*") if folder.name not in before]
