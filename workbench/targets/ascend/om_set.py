"""A candidate's compiled files: one OM for each batch and sequence bin, or one with gears, compiled side by side."""

from __future__ import annotations

import concurrent.futures
import errno
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from workbench.targets.ascend.atc.atc import (
    Run,
    check_operator_package,
    failure_of,
    find_atc,
    place_model,
    run_atc,
    work_directory,
)
from workbench.targets.ascend.atc.command import Shape, compile_flags, shapes_of
from workbench.targets.ascend.atc.compile_story import (
    FUSION_RESULT,
    CompileStory,
    read_fusions,
    sizes_in,
    write_story,
)
from workbench.targets.ascend.atc.om_json import ask_om, count_kernels, form_in
from workbench.targets.ascend.flags import copied_bank
from workbench.targets.ascend.interface import Interface, write_interface
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.common import compiled_file
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate
from workbench.values.errors import ToolchainError
from workbench.values.system.files import temporary_beside

BYTES_PER_COMPILE = int(2.5 * 2**30)
"""Memory that one compile of an encoder may take with its operator compilers [inferred]."""


def compile_shapes(
    lowered: Path,
    candidate: Candidate,
    interface: Interface,
    place_of: Callable[[Shape], Path],
    made: Callable[[Artifact, Path], None] = lambda artifact, place: None,
    *,
    toolchain: Toolchain,
    environment: Mapping[str, str] | None = None,
    parallel: int | None = None,
) -> list[Artifact]:
    """Compile every shape of the candidate, each as an artifact of its own with the interface, ATC's log and what it
    told beside it; in the order of batches, then bins.

    Nothing appears under the name of an OM before it is complete. The first failure ends the other compiles.

    Args:
        place_of: an existing folder for the files of each shape.
        made: called in this thread with each artifact and its folder as soon as it is complete, in the order of
            completion; also with those that were complete when another compile failed, before that failure is raised.
        environment: of ATC; this process's own where it is not given.
        parallel: compiles side by side; as many as processors and memory allow where it is not given.

    Raises:
        CompileError: ATC refused the candidate, died or took too long; the last two are transient.
        ToolchainError: there is no ATC, its installation is not complete, or the disk is full or forbidden.
    """
    settings = AscendCompile.of(candidate)
    shapes, stop = shapes_of(settings, interface), threading.Event()
    base = dict(os.environ if environment is None else environment)
    side_by_side = parallel or parallel_compiles(len(shapes))
    workers = max(1, len(os.sched_getaffinity(0)) // side_by_side)
    find_atc(base)
    check_operator_package(base)

    def compile_one(shape: Shape) -> tuple[Artifact, Path]:
        to = place_of(shape)
        try:
            with work_directory(to, "atc") as root:
                model = place_model(lowered, root)
                files = write_config_files(settings, root) | copied_bank(dict(settings.options), root)
                directory = root / shape.name
                directory.mkdir()
                # Names relative to the directory that ATC works in: it stores its command line in the OM, and equal
                # compiles should give equal files, wherever they ran.
                flags = compile_flags(
                    candidate,
                    shape,
                    interface,
                    soc_version=toolchain.device,
                    model=Path("..") / model.relative_to(root),
                    output=Path(shape.name),
                    files={flag: Path("..") / file.relative_to(root) for flag, file in files.items()},
                )
                log = to / f"{shape.name}.log"
                run = run_atc(flags, directory=directory, log=log, base=base, workers=workers, stop=stop)
                return _collected(shape, run, _output(run, shape), to, base, interface, toolchain), to
        except OSError as error:
            raise _disk_error(error, to) from error

    return _compile_all(shapes, compile_one, side_by_side, stop, made)


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
    return max(1, min(files, len(os.sched_getaffinity(0)), by_memory))


def _compile_all(
    shapes: Sequence[Shape],
    compile_one: Callable[[Shape], tuple[Artifact, Path]],
    side_by_side: int,
    stop: threading.Event,
    made: Callable[[Artifact, Path], None],
) -> list[Artifact]:
    """Every shape, in order; on the first failure, or an interrupt, the rest is stopped before this returns."""
    with concurrent.futures.ThreadPoolExecutor(side_by_side, thread_name_prefix="atc") as pool:
        futures = [pool.submit(compile_one, shape) for shape in shapes]
        waiting = set(futures)
        try:
            for future in concurrent.futures.as_completed(futures):
                if future.exception() is not None:
                    break
                waiting.remove(future)
                made(*future.result())
        finally:
            failed = [future for future in futures if future.done() and future.exception() is not None]
            if waiting:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
    for future in futures:  # a compile takes minutes: what was complete when another failed is not thrown away
        if future in waiting and not future.cancelled() and future.exception() is None:
            made(*future.result())
    return [future.result()[0] for future in (*failed, *futures)]


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
    raise failure_of(run, words, f"{found[0].name} is empty" if found else "there is no OM file")


def _collected(
    shape: Shape,
    run: Run,
    om: Path,
    to: Path,
    environment: Mapping[str, str],
    interface: Interface,
    toolchain: Toolchain,
) -> Artifact:
    """The file in its folder, what is in it, and what ATC told."""
    (kernels, int8_ops, float_matmuls_left), form = ask_om(
        om,
        lambda content: (count_kernels(content), form_in(content)),
        log=to / f"{shape.name}.json.log",
        environment=environment,
    )
    fusions: Mapping[str, int] = {}
    warnings = [f"{message.code}: {message.text}" for message in run.output.warnings]
    try:
        fusions = read_fusions(run.directory / FUSION_RESULT)
    except (OSError, ValueError) as error:  # it explains a result and is no part of it
        why = error.strerror if isinstance(error, OSError) else error  # its folder goes away
        warnings.insert(0, f"{FUSION_RESULT} cannot be read, so that the fusions are not known: {why}")
    target, sizes = to / f"{shape.name}.om", sizes_in(run.ended.output)
    _move(om, target)
    story = CompileStory(
        fusions=fusions,
        info={target.name: sizes} if sizes is not None else {},
        warnings=tuple(dict.fromkeys(warnings)),
        seconds={target.name: run.ended.seconds},
        form=form,
    )
    write_story(story, target)
    file = compiled_file(to, target.name, batch=shape.batch, sequence_bin=shape.sequence_bin)
    return Artifact(
        target=ASCEND,
        files=(file, compiled_file(to, write_interface(interface, to).name)),
        toolchain=toolchain,
        int8_ops=int8_ops,
        float_matmuls_left=float_matmuls_left,
        kernels=kernels,
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
