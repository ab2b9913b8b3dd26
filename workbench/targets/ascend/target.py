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

from workbench.graph.apart import kept_aside
from workbench.graph.read import load_graph, read_model
from workbench.graph.write import write_model
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.record import QuantizationRecord
from workbench.targets.ascend.acl.session import AscendSession
from workbench.targets.ascend.atc.command import Shape as CompiledShape
from workbench.targets.ascend.atc.compile_story import known_form
from workbench.targets.ascend.atc.om_json import ask_om, form_in
from workbench.targets.ascend.interface import Shape, interface_of, turns
from workbench.targets.ascend.lowering import atc_form, lowered_form
from workbench.targets.ascend.om_set import compile_shapes
from workbench.targets.ascend.operators import candidate_issues
from workbench.targets.ascend.settings import ASCEND, INTERFACE, AscendCompile
from workbench.targets.ascend.toolchain import ascend_toolchain, device_ids
from workbench.targets.base import Array, Feeds, OperatorIssue, Session
from workbench.targets.common import graph_to_lower
from workbench.targets.feeds import FileRows, FileSession
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
        made = self._compiled(lowered, candidate, to, lambda shape: to, lambda artifact, place: None)
        files = (*(artifact.files[0] for artifact in made), made[-1].files[-1])
        return replace(made[-1], files=files)  # counts of the largest shape; the others differ in shapes

    def compile_each(
        self, lowered: Path, candidate: Candidate, to: Path, made: Callable[[Artifact, Path], None]
    ) -> None:
        def own_folder(shape: CompiledShape) -> Path:
            (place := to / shape.name).mkdir()
            return place

        self._compiled(lowered, candidate, to, own_folder, made)

    def _compiled(
        self,
        lowered: Path,
        candidate: Candidate,
        to: Path,
        place_of: Callable[[CompiledShape], Path],
        made: Callable[[Artifact, Path], None],
    ) -> list[Artifact]:
        try:
            interface = interface_of(read_model(lowered))
        except ConfigError as error:
            log = to / "atc.log"
            log.write_text(f"{lowered}: {error}\n", encoding="utf-8")
            raise CompileError(f"ATC cannot take {lowered}: {error}", log_path=log) from error
        return compile_shapes(lowered, candidate, interface, place_of, made, toolchain=self.toolchain())

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        # the whole set: a service may form any batch it was compiled for, and memory is measured on what is loaded here
        return AscendSession(directory, artifact, device_id=device)

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
        settings = AscendCompile.of(candidate)
        flags = replace(settings, disabled_fusions=(), enabled_fusions=())
        if settings.shapes == "static":
            flags = replace(flags, batches=(1,), sequence_bins=())
        files = _serving_files(artifact, batch, length)
        forms = [known_form(om) or ask_om(om, form_in) for om in (directory / file.file for file in files)]
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
        # a tensor that holds integers inside the deploy form is what AscendDequant makes of them; without one it is
        # left out
        dequantized = {node.input[0]: node.output[0] for node in proto.graph.node if node.op_type == "AscendDequant"}
        places = {name: dequantized.get(name, name) for name in tensors if name in made and name not in outputs}
        interpreter = Interpreter(proto)

        def call(feeds: Feeds) -> dict[str, Array]:
            values = interpreter.run(feeds, sorted(set(places.values())))
            asked = {name: values[place] for name, place in places.items() if values[place].dtype == np.float32}
            return {name: values[name] for name in outputs} | asked

        return FileSession(call, model.inputs, FileRows(model.inputs, model.outputs))


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
