"""TargetDescription: everything a target says of itself, behind its one entry point.

Light to import: the module that holds one loads neither a vendor's library nor onnx. Whatever needs them is a function
here, which imports inside its body, or `late`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.values.artifact import Toolchain
from workbench.values.device_use import Reader
from workbench.values.dimension import Scalar
from workbench.values.finding import Finding
from workbench.values.installed_targets import InstalledTarget

if TYPE_CHECKING:
    from onnx import ModelProto

    from workbench.targets.base import Calibrator, OperatorIssue, Target
    from workbench.targets.inside import LooksInside
    from workbench.targets.profiler import Profiler
    from workbench.values.artifact import Artifact
    from workbench.values.candidate import Candidate


def late(place: str) -> Callable[..., Any]:
    """What stands at 'package.module:name', imported when it is called."""
    return lambda *arguments: pkgutil.resolve_name(place)(*arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One device of this machine that can be given to a process alone.

    Attributes:
        name: the machine's own, which stays the same whatever a process sees; letters, digits and hyphens.
        environment: variables of a process that sees this one alone.
    """

    name: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Names are those of the toolchain's components. A difference in any other is a warning, and without names
    every one is but those that hold for all targets.

    Attributes:
        runtimes: of which another release, the first two numbers, is refused.
        not_older: of these, an older one is refused too.
        generations: of which another first number is refused.
        compiling_only: that changes nothing once the files are compiled.
        to_device: another kind of device is refused; else its figures are only to be measured again. Instruction sets
            of the host then choose no kernel.
    """

    runtimes: tuple[str, ...] = ()
    not_older: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()
    compiling_only: tuple[str, ...] = ()
    to_device: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Cards beside the host, and what of the host a service on one of them needs.

    Attributes:
        card, second_card: device file of the first card, and of the next one for a word about it.
        others: device files that every process needs besides its card's.
        mounts: paths of the host, given read-only.
        mounts_unneeded: where the mounts may be left out, as a clause behind "the host's driver".
        group, group_id: owner of the device files on the host, and its assumed number.
        group_argument: build argument that holds the number.
        group_owns: what the group owns, as it is written in comments.
        files_note: why the bundle must belong to the service's user.
        log_variable, log_root: environment variable that names the folder of the vendor's logs, and where these go.
        log_note: what happens to these logs in a pod.
        resource: lines of Kubernetes' `resources` that ask for one card.
    """

    card: str
    second_card: str
    others: tuple[str, ...]
    mounts: tuple[str, ...]
    mounts_unneeded: str
    group: str
    group_id: int
    group_argument: str
    group_owns: str
    files_note: str
    log_variable: str
    log_root: str
    log_note: str
    resource: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFacts:
    """What the files of a deployment take from the target.

    Attributes:
        base_image, base_argument: public image to start from, and the build argument that replaces it.
        base_note: comment lines about it, without '#'.
        python: the interpreter's name in that image.
        before_serving: shell commands that set the vendor's environment before the service takes their place.
        worker_threads: that a worker keeps busy on the host; None for the candidate's own.
        worker_mb, worker_mb_for: memory of the host assumed for each worker beside the process, and what for; None
            where it is measured, or follows the files of the model.
        heading, notes: of a section of the guide; texts of `notes` may name `{service_id}` and `{log_folder}`.
    """

    base_image: str = "python:3.11-slim"
    base_argument: str = "BASE_IMAGE"
    base_note: tuple[str, ...] = ()
    python: str = "python"
    before_serving: tuple[str, ...] = ()
    devices: Devices | None = None
    worker_threads: int | None = None
    worker_mb: int | None = None
    worker_mb_for: str = ""
    heading: str = ""
    notes: tuple[str, ...] = ()


Choices = Mapping[str, tuple[Scalar, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStart:
    """What a service is told and asked.

    Attributes:
        today: (max_batch_size, batch_timeout_ms, workers) that the target's users are known to run; None where nobody
            knows, and the first choices are what 'untuned' means.
        concurrency: clients that wait for their answers; None for twice the cores of this machine.
        p99_ms: None where only a call of the model tells: it is measured on this machine.
        host: lines of YAML for the host in front of a device, to be filled in where there is none.
    """

    max_batch_size: tuple[int, ...] = (1, 4, 8, 16)
    batch_timeout_ms: tuple[float, ...] = (0, 2, 5, 10)
    workers: tuple[int, ...] = (1, 2)
    concurrency: int | None = None
    p99_ms: float | None = None
    host: tuple[str, ...] = ()
    today: tuple[int, float, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceStart:
    """A target's part of a first search space and of its experiment.

    Attributes:
        schemes: of INT8, those that it has.
        algorithms, granularity: of static INT8, the default first.
        weight_algorithms: None where its default is as good as any.
        parameters: name → choices, the default first; of precision and of the compiler.
        fusions: those that change the model, each to be a switch; without the prefix of their dimensions.
        int8_fusions: more of them, that only a quantized model has.
        notes: comments for the space, a line each.
        calibration_samples: how many are enough.
        scored: (validation, holdout) samples that are enough where every pass is slow; None for all.
        rehearsal: the command that takes the place of a device that is not there.
    """

    schemes: tuple[str, ...] = ("static",)
    algorithms: tuple[str, ...] = ("mse", "minmax", "percentile", "kl")
    granularity: tuple[str, ...] = ("channel", "tensor")
    weight_algorithms: tuple[str, ...] | None = None
    parameters: Choices = field(default_factory=dict)
    fusions: tuple[str, ...] = ()
    int8_fusions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    service: ServiceStart = ServiceStart()
    calibration_samples: int = 128
    scored: tuple[int, int] | None = None
    rehearsal: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetDescription(InstalledTarget):
    """One target. What has a default may be left out.

    Attributes:
        make: gives the target; imports the vendor's library, and raises ToolchainError where it is missing.
        findings: facts about this machine for `workbench doctor`, by the environment's variables; None where the
            versions that its toolchain names say enough.
        cards: the devices that this process may use, each to be measured on alone; raises ToolchainError where they
            cannot be told.
        chosen_by: section and key of an experiment that name the kind of device that its answers are for; ('', '')
            where there is one kind.
        choose: has what stands in for a device be of the kind of that name, '' for the one that it was; leaves a real
            one as it is. Raises ConfigError for no kind that it knows.
        read_device: gives a reader of one card, by its number and the environment of the process that computes on it;
            None where the host computes, or nothing can be read.
        cluster_resource: what a cluster's scheduler counts its cards by; '' where it computes on the host.
        devices_hint: what to look at where fewer devices are visible than wanted, as the end of a sentence.
        packages: distributions that serving needs beside the workbench's own and the target's.
        unneeded: distribution → why it is left out, although a package above declares it.
        deployment: what production must give a service.
        binding: which facts of a machine an artifact is bound to.
        required_files: names of files without which an artifact is of no use.
        loading: what whoever loads the files without the workbench must know, as items of a list.
        calibrator: the vendor's own quantizer, by the environment's variables; None where there is none.
        profiler: the vendor's tools that look into a device; None where there are none.
        compiled_as: what `workbench compare` has before its compiled files, such as om in `om:FOLDER`; '' where nobody
            can look into them.
        inside: looks into them operator by operator while they run; None where that cannot be done.
        tune: fills a bank of kernels for a candidate by the vendor's tool on the device: (its lowered model, or None
            to take the bank as it is; candidate; folder of the bank; told what is tuned) → the candidate with it. None
            where nobody tunes.
        inspect: what is known to go wrong with a model, errors first; None for what `Target.check` says of INT8.
        engine: what its lowered files are executed by on this machine, as `workbench compare` calls it; '' for the
            target's own name.
        recognizes: whether a file can only be one that this target lowered.
        space_start: what a first search space for a model, an ONNX file, begins with.
        float32_mode: the value of precision.mode with which nothing is rounded further than float32.
        engine_files: files that tell an engine of others how to serve an artifact: (folder of its files, name of the
            service) → name → text; None where `workbench serve` does.
        language: it is for language models: its models are folders, and it is a `targets.language.LanguageTarget`.
        first_space: of such a target, the text of a first search space.
        int8_pays: whether INT8 was found faster than float on machines like this one; where not, it is tried last.
        per_channel_types: operators whose weights may have a scale for each channel; None for all that can be INT8.
    """

    make: Callable[[], Target]
    findings: Callable[[Mapping[str, str]], Iterator[Finding]] | None = None
    cards: Callable[[], tuple[Card, ...]] = lambda: ()
    chosen_by: tuple[str, str] = ("", "")
    choose: Callable[[str], None] = lambda _: None
    read_device: Callable[[int, Mapping[str, str]], Reader] | None = None
    cluster_resource: str = ""
    devices_hint: str = ""
    packages: tuple[str, ...] = ()
    unneeded: Mapping[str, str] = field(default_factory=dict)
    deployment: Callable[[Toolchain], DeploymentFacts] = lambda _: DeploymentFacts()
    binding: Binding = Binding()
    required_files: tuple[str, ...] = ()
    loading: Callable[[Artifact, Candidate], Sequence[str]] = lambda artifact, candidate: ()
    calibrator: Callable[[Mapping[str, str]], Calibrator] | None = None
    profiler: Callable[[], Profiler] | None = None
    compiled_as: str = ""
    inside: Callable[[], LooksInside] | None = None
    tune: Callable[[Path | None, Candidate, Path, Callable[[str], None]], Candidate] | None = None
    inspect: Callable[[ModelProto], tuple[OperatorIssue, ...]] | None = None
    engine: str = ""
    recognizes: Callable[[ModelProto], bool] | None = None
    space_start: Callable[[Path], SpaceStart] = lambda _: SpaceStart()
    float32_mode: str = "fp32"
    engine_files: Callable[[Path, str], Mapping[str, str]] | None = None
    language: bool = False
    first_space: str = ""
    per_channel_types: tuple[str, ...] | None = None
    int8_pays: Callable[[], bool] = lambda: True
