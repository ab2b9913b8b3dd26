"""The Ascend 910B3 target: ATC compiles, pyACL runs; see `workbench.targets.base.Target`.

    lower    float: what ATC covers · INT8: AMCT's deploy form of the record
    compile  one OM for each (batch, bin), or one with gears (float only)
    open     every OM on the device, buffers allocated once

Facts that shaped it: a quantized model takes no dynamic-shape flag, so INT8 means one static file for each batch and
bin (ATC manual, General Restrictions); no precision mode gives INT8, it comes with the deploy model (atc.md, fact 3);
every shape in a file is fixed, so the session pads and cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import ModelProto

from workbench.graph.apart import kept_aside
from workbench.graph.read import load_graph, read_model
from workbench.graph.write import write_model
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.record import QuantizationRecord
from workbench.targets.ascend.acl.session import open_session
from workbench.targets.ascend.atc.compile_story import OF_ONE_FILE, known_form, write_story
from workbench.targets.ascend.atc.om_json import ask_om, form_in
from workbench.targets.ascend.check import candidate_issues
from workbench.targets.ascend.fitting import Shape, turns
from workbench.targets.ascend.interface import INTERFACE, Interface, interface_of, write_interface
from workbench.targets.ascend.lowering import atc_form, lowered_form
from workbench.targets.ascend.om_set import CompiledSet, compile_each, compile_set
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.ascend.toolchain import ascend_toolchain, device_ids
from workbench.targets.base import Array, Feeds, OperatorIssue, Session
from workbench.targets.common import compiled_file, graph_to_lower
from workbench.targets.feeds import FileRows
from workbench.targets.onnxruntime.target import OnnxRuntimeTarget
from workbench.values.artifact import Artifact, CompiledFile, Toolchain
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.errors import CompileError, ConfigError, MeasureError
from workbench.values.model import Model
from workbench.values.system.files import temporary_beside

LOWERED = "lowered.onnx"


class AscendTarget:
    """Ascend 910B3 with CANN 8.5.0."""

    name = ASCEND

    def toolchain(self) -> Toolchain:
        return ascend_toolchain()

    def check(self, model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
        return candidate_issues(model, candidate)

    def lower(self, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Path:
        proto = graph_to_lower(model, candidate, record)
        file = to / LOWERED
        with temporary_beside(file, durable=False) as draft, kept_aside(model.size_bytes):
            if record is not None:
                # also biases that an exporter wrote on the left of their Add: as int32 they join the integer product
                proto = lower_deploy(proto, record, merge_bias=True)
            write_model(atc_form(proto), draft)
        return file

    def compile(self, lowered: Path, candidate: Candidate, to: Path) -> Artifact:
        toolchain, interface = self.toolchain(), _interface(lowered, to)
        compiled = compile_set(lowered, candidate, interface, to, soc_version=toolchain.device)
        write_story(compiled.story, to)
        return self._artifact(compiled, interface, to, toolchain)

    def compile_each(
        self, lowered: Path, candidate: Candidate, to: Path, made: Callable[[Artifact, Path], None]
    ) -> None:
        toolchain, interface = self.toolchain(), _interface(lowered, to)

        def told(compiled: CompiledSet, place: Path) -> None:
            stem = Path(compiled.files[0].file).stem
            write_story(compiled.story, place, f"{stem}{OF_ONE_FILE}")
            made(self._artifact(compiled, interface, place, toolchain), place)

        compile_each(lowered, candidate, interface, to, told, soc_version=toolchain.device)

    def _artifact(self, compiled: CompiledSet, interface: Interface, to: Path, toolchain: Toolchain) -> Artifact:
        write_interface(interface, to)
        return Artifact(
            target=self.name,
            files=(*compiled.files, compiled_file(to, INTERFACE)),
            toolchain=toolchain,
            int8_ops=compiled.int8_ops,
            float_matmuls_left=compiled.float_matmuls_left,
            kernels=compiled.kernels,
        )

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        # the whole set: a service may form any batch it was compiled for, and memory is measured on what is loaded here
        return open_session(directory, artifact, device_id=device)

    def numerics_form(self, artifact: Artifact, directory: Path, candidate: Candidate) -> str:
        """The files that samples are scored with: those of its batch, for every length. An OM holds the command line
        that it was compiled with, so what ATC compiled otherwise is another."""
        batch = candidate.serving.batch
        lengths: set[int | None] = {file.sequence_bin for file in artifact.files if file.sequence_bin is not None}
        files = [file for length in lengths or {None} for file in _serving_files(artifact, batch, length)]
        return digest(sorted([file.batch or 0, file.sequence_bin or 0, file.sha256] for file in files))

    def lowered_form(self, lowered: Path, candidate: Candidate) -> str:
        try:
            return lowered_form(lowered, candidate)
        except ConfigError as error:
            raise CompileError(f"{lowered}: {error}") from error

    def time_form(
        self, artifact: Artifact, directory: Path, candidate: Candidate, *, batch: int, length: int | None
    ) -> str:
        """The files that serve this shape, as ATC tells of them, and the flags that its JSON may not show.

        Runs ATC for each file that nobody looked into when it was compiled: keep the answer.
        """
        settings = candidate.compile
        assert isinstance(settings, AscendCompile)  # Candidate checks it
        flags = replace(settings, disabled_fusions=(), enabled_fusions=())
        if settings.shapes == "static":
            flags = replace(flags, batches=(1,), sequence_bins=())
        files = _serving_files(artifact, batch, length)
        forms = [known_form(directory, file.file) or ask_om(directory / file.file, form_in) for file in files]
        shapes = [(file.batch, file.sequence_bin) for file in files]
        return digest([flags, [[*shape, form] for shape, form in zip(shapes, forms, strict=True)]])

    def devices(self) -> int:
        return len(device_ids())

    def probe(self, lowered: Path, tensors: Sequence[str]) -> Session:
        """The lowered model on the host: float by ONNX Runtime, INT8 by the exact integers of the deploy form."""
        try:
            model = read_model(lowered)
            proto = load_graph(model)
        except ConfigError as error:
            raise MeasureError(f"{lowered}: ONNX Runtime cannot load it: {error}") from error
        if not any(node.op_type.startswith("Ascend") for node in proto.graph.node):
            return OnnxRuntimeTarget().probe(lowered, tensors)
        made = {name for node in proto.graph.node for name in node.output}
        outputs = [value.name for value in proto.graph.output]
        wanted = [name for name in dict.fromkeys(tensors) if name in made and name not in outputs]
        return DeployProbe(proto, wanted, FileRows(model.inputs, model.outputs))


def _interface(lowered: Path, to: Path) -> Interface:
    try:
        return interface_of(read_model(lowered))
    except ConfigError as error:
        log = to / "atc.log"
        log.write_text(f"{lowered}: {error}\n", encoding="utf-8")
        raise CompileError(f"ATC cannot take {lowered}: {error}", log_path=log) from error


def _serving_files(artifact: Artifact, batch: int, length: int | None) -> list[CompiledFile]:
    """The files that a call of this shape runs, in turn; every file where the length of a call is not known.

    Raises:
        MeasureError: none is long enough.
    """
    models = [file for file in artifact.files if file.file != INTERFACE]
    by_shape = {Shape(batch=file.batch, length=file.sequence_bin): file for file in models}
    if len(models) == 1 or (length is None and any(shape.length for shape in by_shape)):
        return models
    wanted = Shape(batch=batch, length=length)
    return [by_shape[turn.shape] for turn in turns(tuple(by_shape), wanted)]


class DeployProbe:
    """A session over the reference interpreter; see `workbench.targets.base.Session`.

    A tensor that holds integers inside the deploy form is what AscendDequant makes of them; without one it is left out,
    as a probe gives float tensors.
    """

    def __init__(self, proto: ModelProto, tensors: Sequence[str], rows: FileRows) -> None:
        self._interpreter: Interpreter | None = Interpreter(proto)
        self._rows = rows
        dequantized = {node.input[0]: node.output[0] for node in proto.graph.node if node.op_type == "AscendDequant"}
        self._outputs = [value.name for value in proto.graph.output]
        self._places = {name: dequantized.get(name, name) for name in tensors}

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return self._rows.run(self._call, feeds)

    def _call(self, feeds: Feeds) -> dict[str, Array]:
        if self._interpreter is None:
            raise MeasureError("The session is closed; open the artifact again.")
        values = self._interpreter.run(feeds, sorted(set(self._places.values())))
        asked = {name: values[place] for name, place in self._places.items()}
        outputs = {name: values[name] for name in self._outputs}
        return outputs | {name: v for name, v in asked.items() if v.dtype == np.float32}

    def close(self) -> None:
        self._interpreter = None
