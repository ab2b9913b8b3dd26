"""What every target does alike, whatever its vendor: the model that is lowered, the files that are compiled."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, ValueInfoProto

from workbench.graph.read import digest_of, load_graph, read_model
from workbench.quantization.record import QuantizationRecord
from workbench.values.artifact import Artifact, CompiledFile, Toolchain
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.errors import ConfigError, LoweringError, MeasureError
from workbench.values.model import Model
from workbench.values.system.cpu import this_cpu


def host_toolchain(name: str, engine: Mapping[str, str], capabilities: Sequence[str] = ()) -> Toolchain:
    """Of a target that computes on this machine's processor.

    Args:
        engine: its runtime and version.
        capabilities: that the runtime has here, beside the processor's own.
    """
    cpu, place = this_cpu(), {"platform": f"{platform.system()} {platform.machine()}"}
    return Toolchain(
        target=name,
        components={"numpy": np.__version__, "onnx": onnx.__version__, **engine, **place},
        device=cpu.name,
        features=tuple(sorted((*cpu.features, *capabilities, f"{cpu.cores} cores"))),
    )


def graph_to_lower(model: Model, candidate: Candidate, record: QuantizationRecord | None) -> ModelProto:
    """The model's graph, after a check that the record is there exactly where it is needed, and belongs to the model.

    Raises:
        TypeError: a record too many, or none.
        LoweringError: the record or the file is not what it was.
    """
    if (record is not None) != candidate.quantization.calibrated:
        said = "needs" if record is None else "takes no"
        raise TypeError(f"scheme {candidate.quantization.scheme!r} {said} record")
    try:
        proto = load_graph(model)
    except ConfigError as error:  # the user's file was fine when the experiment began
        raise LoweringError(str(error)) from error
    if record is not None and record.model_sha256 != model.sha256:
        raise LoweringError(
            f"The record belongs to model {record.model_sha256[:12]}, this is {model.sha256[:12]}. Calibrate again."
        )
    return proto


def compiled_file(
    directory: Path, name: str, *, batch: int | None = None, sequence_bin: int | None = None
) -> CompiledFile:
    """A file of an artifact, with its digest and size; it serves any batch and length that is not named."""
    file = directory / name
    with file.open("rb") as stream:
        sha256 = digest_of(stream).hexdigest()
    size_bytes = file.stat().st_size
    return CompiledFile(batch=batch, sequence_bin=sequence_bin, file=name, sha256=sha256, size_bytes=size_bytes)


def whole_files(artifact: Artifact) -> str:
    """The digest of every file of an artifact: the form of one about which nothing better is known."""
    return digest([[file.batch, file.sequence_bin, file.sha256] for file in artifact.files])


def with_outputs(lowered: Path, tensors: Sequence[str]) -> tuple[ModelProto, int]:
    """(the model of the file with these tensors as further outputs, how many those are).

    Each comes once; tensors that no node makes are left out. The new outputs state no type: the runtime infers it.

    Raises:
        MeasureError: the file is no ONNX model.
    """
    try:
        model = load_graph(read_model(lowered))
    except ConfigError as error:
        raise MeasureError(f"{lowered}: cannot load it: {error}") from error
    made = {name for node in model.graph.node for name in node.output}
    known = {output.name for output in model.graph.output}
    added = [name for name in dict.fromkeys(tensors) if name in made and name not in known]
    model.graph.output.extend(ValueInfoProto(name=name) for name in added)
    return model, len(added)
