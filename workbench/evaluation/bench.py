"""What evaluations share: the store, the sweep's journal, the opened targets; and what a stage says of itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.evaluation.data_check import check_data
from workbench.evaluation.journal import Journal
from workbench.evaluation.modelled_latency import ModelledCall
from workbench.evaluation.store import Store
from workbench.inputs.experiment import Experiment
from workbench.targets import described, open_target
from workbench.targets.base import Calibrator, Target
from workbench.values.artifact import Toolchain
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError, ToolchainError
from workbench.values.system.files import lock_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What evaluations share: the store, the sweep's journal, the opened targets and their toolchains.

    Attributes:
        targets, toolchains: by name, of every target of the experiment.
        report: receives (candidate, stage) when a stage begins.
        calibrators: target → the vendor's own quantizer, of those that have one.
        card: the only one that this process sees and times on, by the machine's name for it; "" where it sees all, or
            computes on the host.
        modelled_calls: (candidate id, shapes of a feed) → a call of an emulated device, whose time never changes.
    """

    store: Store
    journal: Journal
    targets: Mapping[str, Target]
    toolchains: Mapping[str, Toolchain]
    report: Callable[[Candidate, str], None]
    calibrators: Mapping[str, Calibrator] = field(default_factory=dict)
    card: str = ""
    modelled_calls: dict[tuple[str, str], ModelledCall] = field(default_factory=dict)

    def target(self, candidate: Candidate) -> Target:
        return self.targets[candidate.target]

    def toolchain(self, candidate: Candidate) -> Toolchain:
        return self.toolchains[candidate.target]

    @property
    def device_lock(self) -> Path:
        """File locked while anything is timed, so that two sweeps of one workspace never time at once on a card."""
        return self.store.root / ".locks" / f"{'-'.join(filter(None, ('device', self.card)))}.lock"


class StageClock:
    """Says when a stage begins and whether its result came from the store; `evaluate` turns it into timings.

    Attributes:
        compiled, shared: of the stage that runs; see `StageTiming`.
    """

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[StageClock]:
        yield self

    cached = False
    compiled = 0
    shared = 0

    def made_file(self) -> None:
        self.compiled += 1


def open_bench(
    experiment: Experiment, journal: Journal, store: Store, report: Callable[[Candidate, str], None], card: str = ""
) -> Bench:
    """Open the experiment's targets and check its data against its model, before any work.

    Raises:
        ConfigError: the dataset does not fit the model.
        ToolchainError: a target cannot be used on this machine, or some but not all of them are emulated.
    """
    targets = {name: open_target(name) for name in experiment.targets}
    toolchains = {name: target.toolchain() for name, target in targets.items()}
    if len({chain.emulated for chain in toolchains.values()}) > 1:
        emulated = ", ".join(name for name, chain in toolchains.items() if chain.emulated)
        raise ToolchainError(
            f"{emulated} is emulated here, and modelled times are never compared with measured ones. Sweep it in an "
            "experiment of its own, or on the device."
        )
    for name, chain in toolchains.items():
        if experiment.device and any(described(name).chosen_by) and chain.device != experiment.device:
            raise ToolchainError(
                f"{experiment.path} asks for {experiment.device}, and here is {chain.device}. Run it on a machine with "
                "such a device, or ask for this one."
            )
    check_data(experiment)
    offered = {name: described(name).calibrator for name in targets}
    calibrators = {name: make(os.environ) for name, make in offered.items() if make is not None}
    return Bench(
        store=store,
        journal=journal,
        targets=targets,
        toolchains=toolchains,
        report=report,
        calibrators=calibrators,
        card=card,
    )


@contextlib.contextmanager
def log_kept(bench: Bench, candidate: Candidate) -> Iterator[None]:
    """Move a failing tool's log into the journal: the directory it wrote into goes away with the failed build."""
    try:
        yield
    except CandidateError as error:
        if error.log_path is not None and error.log_path.exists():
            kept = bench.journal.log(candidate.id)
            shutil.copyfile(error.log_path, kept)
            error.log_path = kept
        raise


# --- the device held by one process at a time, for as long as anything is timed --------------------------------------

_SOMEBODY = "another process"


@contextlib.contextmanager
def device_lock(path: Path, *, wait_s: float, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the device alone: two sweeps that time at once measure each other.

    The kernel drops the lock with its process, kill -9 included, so a file left behind locks nobody out. The file
    names its last holder, for the message.

    Args:
        report: told once, with the holder, when there is someone to wait for.

    Raises:
        ToolchainError: still held after `wait_s`, or the lock file cannot be opened.
    """
    owner = f"process {os.getpid()} ({' '.join(sys.argv)[:200]})"
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(
                lock_file(
                    path,
                    wait_s=wait_s,
                    owner=owner,
                    waiting=lambda holder: report(f"waiting for the device, in use by {holder or _SOMEBODY}"),
                )
            )
        except OSError as error:
            raise ToolchainError(f"{path}: the device's lock file cannot be opened: {error}.") from error
        if not lock.held:
            raise ToolchainError(
                f"{path}: the device is still in use by {lock.holder or _SOMEBODY} after {wait_s:g} s. "
                "Wait for it or stop it."
            )
        yield
