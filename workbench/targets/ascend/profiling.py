"""The vendor's profiler and overflow check over one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.targets.ascend.acl.process import ACL_CONFIG
from workbench.targets.ascend.atc.compile_story import read_story, story_text
from workbench.targets.ascend.fused_names import fused_kernels
from workbench.targets.ascend.installation import find_installation
from workbench.targets.ascend.interface import INTERFACE
from workbench.targets.ascend.msprof import profile, run_msprof
from workbench.targets.ascend.overflow import overflow_text, read_overflows, suspects, way_on, write_overflow_config
from workbench.targets.ascend.profiles.kernels import kernel_us
from workbench.targets.ascend.profiles.levers import levers
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiles.tables import MOST_ROWS, Reading
from workbench.targets.ascend.profiles.tasks import read_tasks
from workbench.targets.ascend.program import run_program
from workbench.targets.profiler import KernelTime, Overflows
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.device_profile import DeviceProfile, Lever
from workbench.values.dimension import Scalar
from workbench.values.errors import MeasureError

REPLAY_TIMEOUT_S = 900.0


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
        found = profile(replay, to, environment=environment, chip=artifact.toolchain.device)
        return _completed(found, artifact, directory)

    def read(self, folder: Path, artifact: Artifact, directory: Path) -> DeviceProfile:
        inside = sorted(one for one in folder.glob("PROF_*") if one.is_dir()) or [folder]
        return _completed(read_profile(inside, chip=artifact.toolchain.device), artifact, directory)

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
        tasks, _ = read_tasks(run_msprof(replay, to, environment=environment), Reading(left=MOST_ROWS))
        took, origins = kernel_us(tasks), fused_kernels(om)
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

    def levers(
        self, profile: DeviceProfile, candidate: Candidate, offered: Mapping[str, tuple[Scalar, ...]]
    ) -> tuple[Lever, ...]:
        return levers(profile, candidate, offered)

    def overflows(
        self, replay: Sequence[str], calls: int, to: Path, *, environment: Mapping[str, str], once: bool = False
    ) -> Overflows:
        to.mkdir(parents=True, exist_ok=True)
        config = write_overflow_config(to)
        log = to / "run.log"
        surroundings = {**environment, ACL_CONFIG: str(config)}
        ended = run_program(list(replay), environment=surroundings, timeout_s=REPLAY_TIMEOUT_S, log=log)
        if ended.code != 0:
            how = (
                f"took longer than {REPLAY_TIMEOUT_S:g} s"
                if ended.code is None
                else f"failed with exit code {ended.code}"
            )
            last = ended.output.strip().splitlines()[-1:] or ["no output"]
            raise MeasureError(f"the run with the overflow check {how}: {last[0]}", log_path=log)
        found = read_overflows(to / "overflow", find_installation().home, to / "decoded", once=once)
        return Overflows(text=overflow_text(found, calls), suspects=suspects(found))

    def way_on(self, nodes: Sequence[str]) -> str:
        return way_on(nodes)


def _completed(found: DeviceProfile, artifact: Artifact, directory: Path) -> DeviceProfile:
    story = read_story(directory)
    told = () if story is None else tuple(story_text(story).splitlines())
    modelled = found.modelled or artifact.toolchain.emulated
    return replace(found, modelled=modelled, notes=(*found.notes, *told))
