"""Which artifacts a measurement is worth something to: those of one class, by the content of their files.

    numerics_class(…)   equal: equal outputs for equal feeds, so one accuracy
    time_class(…)       equal: the same work for a feed of one shape, so one time on one machine, within its noise

Classes hold where one model is compiled: within an experiment. A time class is a claim, which measurements of a share
of its members keep honest.
"""

from __future__ import annotations

from pathlib import Path

from workbench.targets.base import StatesForms, StatesLoweredForm, Target
from workbench.targets.common import whole_files
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest, file_digest


def numerics_class(target: Target, artifact: Artifact, directory: Path, candidate: Candidate) -> str:
    """What decides the outputs of an artifact, 64 hex digits.

    Threads are left out where a target states forms: rows and columns are split between them, never one sum.
    """
    if not isinstance(target, StatesForms):
        return _whole(artifact, candidate)
    return _class(artifact, target.numerics_form(artifact, directory, candidate), "numerics")


def time_class(
    target: Target, artifact: Artifact, directory: Path, candidate: Candidate, *, batch: int, length: int | None
) -> str:
    """What decides the time of one call of this shape, 64 hex digits; of calls at other shapes it says nothing."""
    if not isinstance(target, StatesForms):
        return _whole(artifact, candidate)
    form = target.time_form(artifact, directory, candidate, batch=batch, length=length)
    threads = candidate.serving.intra_op_threads
    return _class(artifact, form, f"time, {threads} threads, {candidate.serving.streams} streams")


def structure_class(target: Target, lowered: Path, candidate: Candidate) -> str:
    """What decides the times of a candidate's compiled shapes, as far as it is known before compiling; 64 hex digits.

    A claim that audits keep honest, like a time class, and one made earlier.
    """
    if isinstance(target, StatesLoweredForm):
        return digest({"target": target.name, "of": "structure", "form": target.lowered_form(lowered, candidate)})
    settings = candidate.compile.for_shapes((1,), ()) if candidate.compile.one_file_a_shape() else candidate.compile
    return digest([target.name, file_digest(lowered), candidate.precision, settings])


def _class(artifact: Artifact, form: str, of: str) -> str:
    return digest({"target": artifact.target, "toolchain": artifact.toolchain, "of": of, "form": form})


def _whole(artifact: Artifact, candidate: Candidate) -> str:
    """Everything that `Target.open` is given, but for what chose the scales: those are in the files."""
    opened_with = {"precision": candidate.precision, "compile": candidate.compile, "serving": candidate.serving}
    return digest(
        {**opened_with, "scheme": candidate.quantization.scheme, "form": _class(artifact, whole_files(artifact), "all")}
    )
