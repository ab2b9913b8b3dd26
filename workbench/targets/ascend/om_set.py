"""A candidate's compiled files: one OM for each batch and sequence bin, or one with gears, compiled side by side."""

from __future__ import annotations

import concurrent.futures
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from workbench.targets.ascend.atc.atc import (
    Run,
    check_operator_package,
    compile_environment,
    compile_timeout_s,
    find_atc,
    place_model,
    run_atc,
    work_directory,
)
from workbench.targets.ascend.atc.command import Shape, argument_vector, compile_flags, shapes_of
from workbench.targets.ascend.atc.compile_story import FUSION_RESULT, CompileStory, read_fusions, sizes_in
from workbench.targets.ascend.atc.failure import complete_log, failure_of, no_file
from workbench.targets.ascend.atc.om_json import ask_om, count_kernels, form_in
from workbench.targets.ascend.flags import copied_bank
from workbench.targets.ascend.interface import Interface
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.common import compiled_file
from workbench.values.artifact import CompiledFile
from workbench.values.candidate import Candidate
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
    """

    files: tuple[CompiledFile, ...]
    kernels: Mapping[str, int]
    int8_ops: int
    float_matmuls_left: int
    story: CompileStory


def compile_set(
    lowered: Path,
    candidate: Candidate,
    interface: Interface,
    to: Path,
    *,
    soc_version: str,
    shapes: Sequence[Shape] = (),
    environment: Mapping[str, str] | None = None,
    parallel: int | None = None,
    stop: threading.Event | None = None,
) -> CompiledSet:
    """Compile every shape of the candidate into `to`, with the log of each beside it.

    Nothing appears under the name of an OM before it is complete. The first failure ends the other compiles.

    Args:
        to: exists and is empty.
        shapes: these alone.
        environment: of ATC; this process's own where it is not given.
        parallel: compiles side by side; as many as processors and memory allow where it is not given.
        stop: ends the compiles once it is set.

    Raises:
        CompileError: ATC refused the candidate, died or took too long; the last two are transient.
        ToolchainError: there is no ATC, its installation is not complete, or the disk is full or forbidden.
    """
    settings = candidate.compile
    assert isinstance(settings, AscendCompile)  # Candidate checks it
    shapes = shapes or shapes_of(settings, interface)
    base = dict(os.environ if environment is None else environment)
    options, stop = dict(settings.options), stop or threading.Event()
    side_by_side = parallel or parallel_compiles(len(shapes))
    atc = find_atc(base)
    check_operator_package(base)
    try:
        with work_directory(to, "atc") as root:
            model = place_model(lowered, root)
            files = write_config_files(settings, root) | copied_bank(options, root)

            def compile_one(shape: Shape) -> tuple[Run, Path]:
                directory = root / shape.name
                directory.mkdir()
                # Names relative to the directory that ATC works in: it stores its command line in the OM, and equal
                # compiles should give equal files, wherever they ran.
                flags = compile_flags(
                    candidate,
                    shape,
                    interface,
                    soc_version=soc_version,
                    model=_seen_from(directory, model),
                    output=Path(shape.name),
                    files={flag: _seen_from(directory, file) for flag, file in files.items()},
                )
                workers = max(1, _processors() // side_by_side)
                run = run_atc(
                    [str(atc), *argument_vector(flags)],
                    directory=directory,
                    log=to / f"{shape.name}.log",
                    environment=compile_environment(base, directory, workers=workers),
                    timeout_s=compile_timeout_s(base),
                    stop=stop,
                )
                return run, _output(run, shape)

            return _collected(shapes, _compile_all(shapes, compile_one, side_by_side, stop), to, base)
    except OSError as error:
        raise _disk_error(error, to) from error


def compile_each(
    lowered: Path,
    candidate: Candidate,
    interface: Interface,
    to: Path,
    made: Callable[[CompiledSet, Path], None],
    *,
    soc_version: str,
) -> None:
    """The same, every file as a set of its own in a folder of its own below `to`, with its own counts.

    Args:
        made: called in this thread with each set as soon as it is complete, in the order of completion; also with those
            that were complete when another compile failed, before that failure is raised.

    Raises:
        As `compile_set`.
    """
    assert isinstance(candidate.compile, AscendCompile)  # Candidate checks it
    shapes, stop = shapes_of(candidate.compile, interface), threading.Event()
    parallel = parallel_compiles(len(shapes))

    def alone(shape: Shape) -> tuple[CompiledSet, Path]:
        place = to / shape.name
        place.mkdir()
        own = (shape,)
        compiled = compile_set(
            lowered, candidate, interface, place, soc_version=soc_version, shapes=own, parallel=parallel, stop=stop
        )
        return compiled, place

    _compile_all(shapes, alone, parallel, stop, lambda result: made(*result))


def write_config_files(settings: AscendCompile, to: Path) -> dict[str, Path]:
    """Write the files that the settings need below `to`; returns flag → file."""
    written = {}
    for flag, (name, text) in settings.handed_files().items():
        written[flag] = to / name
        written[flag].write_text(text, encoding="utf-8")
    return written


def parallel_compiles(files: int) -> int:
    """How many compiles this machine runs side by side."""
    by_memory = psutil.virtual_memory().available // BYTES_PER_COMPILE
    return max(1, min(files, _processors(), by_memory))


def _compile_all(
    shapes: Sequence[Shape],
    compile_one: Callable[[Shape], T],
    side_by_side: int,
    stop: threading.Event,
    made: Callable[[T], None] = lambda result: None,
) -> list[T]:
    """Every shape, in order; on the first failure, or an interrupt, the rest is stopped before this returns."""
    if len(shapes) == 1:
        made(alone := compile_one(shapes[0]))
        return [alone]
    with concurrent.futures.ThreadPoolExecutor(side_by_side, thread_name_prefix="atc") as pool:
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
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
    tell(futures)  # a compile takes minutes: what was complete when another failed is not thrown away
    return [future.result() for future in (*failed, *futures)]


def _seen_from(directory: Path, file: Path) -> Path:
    return Path(os.path.relpath(file, directory))


def _output(run: Run, shape: Shape) -> Path:
    """The compiled file under either name: a dynamic model's gets `_<os>_<arch>` (model_helper.cc:514-542)."""
    if shape.dynamic_dims:
        words = f"the model with gears {shape.dynamic_dims}"
    else:
        words = f"the model for batch {shape.batch}"
        words += "" if shape.sequence_bin is None else f", length {shape.sequence_bin}"
    found = [*run.directory.glob(f"{shape.name}.om"), *sorted(run.directory.glob(f"{shape.name}_*_*.om"))]
    if run.ended.code == 0 and found and found[0].stat().st_size:
        return found[0]
    if run.ended.code != 0:
        error: CompileError | ToolchainError = failure_of(run, words)
    else:
        error = no_file(run, words, f"{found[0].name} is empty" if found else "there is no OM file")
    complete_log(run)
    raise error


def _collected(
    shapes: Sequence[Shape], compiled: Sequence[tuple[Run, Path]], to: Path, environment: Mapping[str, str]
) -> CompiledSet:
    """The set in its folder; its counts and fusions are those of the last shape."""
    last, om = compiled[-1]
    (kernels, int8_ops, float_matmuls_left), form = ask_om(
        om, lambda content: (count_kernels(content), form_in(content)), log=to / "json.log", environment=environment
    )
    fusions: dict[str, int] = {}
    warnings: dict[str, None] = {}
    try:
        fusions = read_fusions(last.directory / FUSION_RESULT)
    except (OSError, ValueError) as error:  # it explains a result and is no part of it
        warnings[f"{FUSION_RESULT} cannot be read, so that the fusions are not known: {error}"] = None
    files, info, seconds = [], {}, {}
    for shape, (run, source) in zip(shapes, compiled, strict=True):
        target = to / f"{shape.name}.om"
        _move(source, target)
        files.append(compiled_file(to, target.name, batch=shape.batch, sequence_bin=shape.sequence_bin))
        told = sizes_in(run.ended.output)
        if told is not None:
            info[target.name] = told
        seconds[target.name] = run.ended.seconds
        warnings |= dict.fromkeys(f"{message.code}: {message.text}" for message in run.output.warnings)
    return CompiledSet(
        files=tuple(files),
        kernels=kernels,
        int8_ops=int8_ops,
        float_matmuls_left=float_matmuls_left,
        story=CompileStory(fusions=fusions, info=info, warnings=tuple(warnings), seconds=seconds, form=form),
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
