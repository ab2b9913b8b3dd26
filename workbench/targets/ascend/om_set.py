"""A candidate's compiled files: one OM for each batch and sequence bin, or one with gears, compiled side by side."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psutil

from workbench.targets.ascend.atc.atc import (
    Run,
    check_operator_package,
    compile_environment,
    compile_timeout_s,
    find_atc,
    run_atc,
)
from workbench.targets.ascend.atc.command import Shape, argument_vector, compile_flags, shapes_of
from workbench.targets.ascend.atc.config_files import write_config_files
from workbench.targets.ascend.atc.failure import complete_log, failure_of, no_file
from workbench.targets.ascend.atc.named_folders import copied_bank, operators_environment
from workbench.targets.ascend.atc.om_info import OmInfo, parse_info
from workbench.targets.ascend.atc.om_json import KernelCounts, count_kernels
from workbench.targets.ascend.atc.om_to_json import run_to_json
from workbench.targets.ascend.atc.passes import FUSION_RESULT, Fusion, read_fusions
from workbench.targets.ascend.interface import Interface
from workbench.targets.ascend.om_form import form_of_json
from workbench.targets.ascend.paths import place_model, work_directory
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.artifact import CompiledFile
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import file_digest
from workbench.values.errors import CompileError, ToolchainError
from workbench.values.system.files import temporary_beside

T = TypeVar("T")

BYTES_PER_COMPILE = int(2.5 * 2**30)
"""Memory that one compile of an encoder may take with its operator compilers [inferred]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSet:
    """What ATC made of one candidate.

    Attributes:
        files: in the order of batches, then bins.
        kernels, int8_ops, float_matmuls_left: of the file for the largest shape; the others differ in shapes.
        fusions: passes that matched in that compile; empty where ATC left no report.
        info: file → what ATC tells about it; files it told nothing about are absent.
        warnings: ATC's, each once, with its code.
        seconds: file → wall time of its compile.
        form: of the file whose kernels were counted, what decides its time (`om_form`).
    """

    files: tuple[CompiledFile, ...]
    kernels: Mapping[str, int]
    int8_ops: int
    float_matmuls_left: int
    fusions: tuple[Fusion, ...]
    info: Mapping[str, OmInfo]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
    form: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What all compiles of one set share."""

    atc: Path
    model: Path
    candidate: Candidate
    interface: Interface
    soc_version: str
    environment: Mapping[str, str]
    operators: dict[str, str]
    files: Mapping[str, Path]
    root: Path
    to: Path
    side_by_side: int
    workers: int
    timeout_s: float
    stop: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    run: Run
    om: Path


def compile_set(
    lowered: Path,
    candidate: Candidate,
    interface: Interface,
    to: Path,
    *,
    soc_version: str,
    environment: Mapping[str, str] | None = None,
    parallel: int | None = None,
    timeout_s: float | None = None,
) -> CompiledSet:
    """Compile every shape of the candidate into `to`, with the log of each beside it.

    Nothing appears under the name of an OM before it is complete. The first failure ends the other compiles.

    Args:
        to: exists and is empty.
        environment: of ATC; this process's own where it is not given.
        parallel: compiles side by side; as many as processors and memory allow where it is not given.
        timeout_s: of one file; `compile_timeout_s` where it is not given.

    Raises:
        CompileError: ATC refused the candidate, died or took too long; the last two are transient.
        ConfigError: the candidate holds a flag or value that 8.5.0 does not have.
        ToolchainError: there is no ATC, its installation is not complete, or the disk is full or forbidden.
    """
    assert isinstance(candidate.compile, AscendCompile)  # Candidate checks it
    shapes = shapes_of(candidate.compile, interface)
    at = _Where(lowered=lowered, candidate=candidate, interface=interface, to=to, soc_version=soc_version)
    with _job(at, shapes, environment, parallel, timeout_s) as job:
        compiled = _compile_all(job, shapes, lambda shape: _compile(job, shape))
        return _counted(job, shapes, compiled)


def compile_each(
    lowered: Path,
    candidate: Candidate,
    interface: Interface,
    to: Path,
    made: Callable[[CompiledSet, Path], None],
    *,
    soc_version: str,
    environment: Mapping[str, str] | None = None,
    parallel: int | None = None,
    timeout_s: float | None = None,
) -> None:
    """The same, every file as a set of its own in a folder of its own below `to`, with its own counts.

    Args:
        made: called in this thread with each set as soon as it is complete, in the order of completion; also with those
            that were complete when another compile failed, before that failure is raised.

    Raises:
        As `compile_set`.
    """
    assert isinstance(candidate.compile, AscendCompile)  # Candidate checks it
    shapes = shapes_of(candidate.compile, interface)
    at = _Where(lowered=lowered, candidate=candidate, interface=interface, to=to, soc_version=soc_version)
    with _job(at, shapes, environment, parallel, timeout_s) as job:

        def alone(shape: Shape) -> tuple[CompiledSet, Path]:
            place = to / shape.name
            place.mkdir()
            own = replace(job, to=place)
            return _counted(own, (shape,), (_compile(own, shape),)), place

        _compile_all(job, shapes, alone, lambda result: made(*result))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    lowered: Path
    candidate: Candidate
    interface: Interface
    to: Path
    soc_version: str


@contextlib.contextmanager
def _job(
    at: _Where,
    shapes: Sequence[Shape],
    environment: Mapping[str, str] | None,
    parallel: int | None,
    timeout_s: float | None,
) -> Iterator[_Job]:
    """What the compiles of a set share, for as long as its work directory is there."""
    assert isinstance(at.candidate.compile, AscendCompile)  # Candidate checks it
    base = dict(os.environ if environment is None else environment)
    operators = operators_environment(at.candidate.compile)
    atc = find_atc(base)
    check_operator_package(base)
    side_by_side = parallel or parallel_compiles(len(shapes))
    try:
        with work_directory(at.to, "atc") as root:
            yield _Job(
                atc=atc,
                model=place_model(at.lowered, root),
                candidate=at.candidate,
                interface=at.interface,
                soc_version=at.soc_version,
                environment=base,
                operators=operators,
                files=write_config_files(at.candidate.compile, root) | copied_bank(at.candidate.compile, root),
                root=root,
                to=at.to,
                side_by_side=side_by_side,
                workers=max(1, _processors() // side_by_side),
                timeout_s=compile_timeout_s(base) if timeout_s is None else timeout_s,
                stop=threading.Event(),
            )
    except OSError as error:
        raise _disk_error(error, at.to) from error


def parallel_compiles(files: int) -> int:
    """How many compiles this machine runs side by side."""
    by_memory = psutil.virtual_memory().available // BYTES_PER_COMPILE
    return max(1, min(files, _processors(), by_memory))


def _compile_all(
    job: _Job,
    shapes: Sequence[Shape],
    compile_one: Callable[[Shape], T],
    made: Callable[[T], None] = lambda result: None,
) -> list[T]:
    """Every shape, in order; on the first failure, or an interrupt, the rest is stopped before this returns."""
    with concurrent.futures.ThreadPoolExecutor(job.side_by_side, thread_name_prefix="atc") as pool:
        futures = [pool.submit(compile_one, shape) for shape in shapes]
        told: set[concurrent.futures.Future[T]] = set()

        def tell(done: Iterable[concurrent.futures.Future[T]]) -> None:
            for future in done:
                if future not in told and not future.cancelled() and future.exception() is None:
                    told.add(future)
                    made(future.result())

        failed: list[concurrent.futures.Future[T]] = []
        try:
            for future in concurrent.futures.as_completed(futures):
                if future.exception() is not None:
                    break
                tell([future])
        finally:
            unfinished = not all(future.done() for future in futures)
            failed = [f for f in futures if f.done() and not f.cancelled() and f.exception() is not None]
            if failed or unfinished:
                job.stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
    tell(futures)  # a compile takes minutes: what was complete when another failed is not thrown away
    for future in failed or futures:
        future.result()
    return [future.result() for future in futures]


def _counted(job: _Job, shapes: Sequence[Shape], compiled: Sequence[_Compiled]) -> CompiledSet:
    """The set in the job's folder, its counts those of the last shape."""
    counts, form = _count(job, compiled[-1], shapes[-1])
    fusions, unread = _fusions(compiled[-1].run.directory)
    return _collect(job, shapes, compiled, counts, form, fusions, unread)


def _compile(job: _Job, shape: Shape) -> _Compiled:
    directory = job.root / shape.name
    directory.mkdir()
    # Names relative to the directory that ATC works in: it stores its command line in the OM, and equal compiles should
    # give equal files, wherever they ran.
    flags = compile_flags(
        job.candidate,
        shape,
        job.interface,
        soc_version=job.soc_version,
        model=_seen_from(directory, job.model),
        output=Path(shape.name),
        files={flag: _seen_from(directory, file) for flag, file in job.files.items()},
    )
    run = run_atc(
        [str(job.atc), *argument_vector(flags)],
        directory=directory,
        log=job.to / f"{shape.name}.log",
        environment=compile_environment(job.environment, directory, workers=job.workers) | job.operators,
        timeout_s=job.timeout_s,
        stop=job.stop,
    )
    if run.status != 0:
        error = failure_of(run, _words(shape))
        complete_log(run)
        raise error
    om = _output(directory, shape.name)
    if om is None or om.stat().st_size == 0:
        error = no_file(run, _words(shape), "there is no OM file" if om is None else f"{om.name} is empty")
        complete_log(run)
        raise error
    return _Compiled(run=run, om=om)


def _seen_from(directory: Path, file: Path) -> Path:
    return Path(os.path.relpath(file, directory))


def _output(directory: Path, name: str) -> Path | None:
    """The compiled file under either name: a dynamic model's gets `_<os>_<arch>` (model_helper.cc:514-542)."""
    plain = directory / f"{name}.om"
    if plain.is_file():
        return plain
    return next(iter(sorted(directory.glob(f"{name}_*_*.om"))), None)


def _count(job: _Job, compiled: _Compiled, shape: Shape) -> tuple[KernelCounts, str]:
    """What is in the file, and the form of it: both from one look of ATC into it, which takes no device."""
    directory = job.root / f"json-{shape.name}"
    directory.mkdir()
    what = f"{shape.name}.om into JSON"
    environment = compile_environment(job.environment, directory, workers=job.workers)
    run, file = run_to_json(
        job.atc, compiled.om, directory, log=job.to / "json.log", environment=environment, timeout_s=job.timeout_s
    )
    try:
        if run.status != 0:
            raise failure_of(run, what)
        try:
            return count_kernels(file), form_of_json(file)
        except ValueError as error:
            raise no_file(run, what, f"its JSON cannot be read: {error}") from error
        except FileNotFoundError as error:
            raise no_file(run, what, "there is no JSON file") from error
    except (CompileError, ToolchainError):
        complete_log(run)
        raise


def _fusions(directory: Path) -> tuple[tuple[Fusion, ...], str]:
    """The report, and why there is none: it explains a result and is no part of it."""
    try:
        return read_fusions(directory / FUSION_RESULT), ""
    except (OSError, ValueError) as error:
        return (), f"{FUSION_RESULT} cannot be read, so that the fusions are not known: {error}"


def _collect(
    job: _Job,
    shapes: Sequence[Shape],
    compiled: Sequence[_Compiled],
    counts: KernelCounts,
    form: str,
    fusions: tuple[Fusion, ...],
    unread: str,
) -> CompiledSet:
    files, info, warnings = [], {}, dict.fromkeys([unread] if unread else [])
    for shape, made in zip(shapes, compiled, strict=True):
        target = job.to / f"{shape.name}.om"
        _move(made.om, target)
        files.append(
            CompiledFile(
                batch=shape.batch,
                sequence_bin=shape.sequence_bin,
                file=target.name,
                sha256=file_digest(target),
                size_bytes=target.stat().st_size,
            )
        )
        told = parse_info(made.run.text)
        if told is not None:
            info[target.name] = told
        warnings |= dict.fromkeys(f"{message.code}: {message.text}" for message in made.run.output.warnings)
    return CompiledSet(
        files=tuple(files),
        kernels=counts.kernels,
        int8_ops=counts.int8_ops,
        float_matmuls_left=counts.float_matmuls_left,
        fusions=fusions,
        info=info,
        warnings=tuple(warnings),
        seconds={f"{s.name}.om": made.run.seconds for s, made in zip(shapes, compiled, strict=True)},
        form=form,
    )


def _move(source: Path, target: Path) -> None:
    """Rename, or across disks copy under another name and rename: never half a file under `target`."""
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with temporary_beside(target, durable=False) as draft:
            shutil.copyfile(source, draft)


def _words(shape: Shape) -> str:
    if shape.dynamic_dims:
        return f"the model with gears {shape.dynamic_dims}"
    length = "" if shape.sequence_bin is None else f", length {shape.sequence_bin}"
    return f"the model for batch {shape.batch}{length}"


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _disk_error(error: OSError, to: Path) -> ToolchainError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ToolchainError(
            f"{to}: no space for compiled files ({error.strerror}). Free some space (`workbench cache` shows what the "
            "cache holds), then run the same command again; what was measured is kept."
        )
    return ToolchainError(
        f"{error.filename or to}: compiled files cannot be read or written ({error.strerror}). Give this user "
        "write rights there, or choose another folder."
    )
