"""A reference interpreter of deploy models: what the INT8 arithmetic gives, exactly, without the device.

ONNX Runtime has no AscendQuant, and its integer kernels may saturate where the CPU lacks the right instructions. Here
integers are computed exactly in NumPy (steps.py), and the float operators between them by ONNX Runtime, one
by one as they stand, in as few sessions as the dependencies allow:

    floats 0 ─► AscendQuant … AscendDequant ─► floats 1 ─► AscendQuant … AscendDequant ─► floats 2 ─► …
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from workbench.graph.apart import array_of
from workbench.graph.nodes import names_read
from workbench.graph.read import constants
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.integers.steps import integer_step
from workbench.quantization.lowering.ascend_quant import (
    ANTI_QUANT,
    DEQUANT,
    QUANT,
    Arithmetic,
    Array,
    IntegerTensor,
    Step,
    Values,
)
from workbench.quantization.sessions import session_on
from workbench.values.errors import LoweringError, MeasureError, nearest

_ASCEND = (QUANT, DEQUANT, ANTI_QUANT)


class Interpreter:
    """Runs one deploy model (`deploy.lower_deploy`, or AMCT's own). Equal feeds give equal bits, on any CPU for the
    integers; dynamic dimensions are free. Not for use by several threads at once.

    Args:
        truncate_deq_scale: AscendDequant's factors lose their low 13 bits, as the device probably has it
            ([inferred] for 910B3; amct.md §6.6).
        force_fp16: the arithmetic of AMCT's FORCE_FP16_QUANT simulation (amct.md §6.6).
        threads: of ONNX Runtime, for the float operators.

    Raises:
        LoweringError: an integer tensor meets an operator, attribute or constant that the deploy form does not have,
            or the float part is not valid ONNX.
    """

    def __init__(
        self,
        model: ModelProto,
        *,
        truncate_deq_scale: bool = False,
        force_fp16: bool = False,
        threads: int = 1,
    ) -> None:
        arithmetic = Arithmetic(truncate_deq_scale=truncate_deq_scale, force_fp16=force_fp16)
        self._known = constants(model)
        self._inputs = {
            value.name: value.type.tensor_type.elem_type for value in model.graph.input if value.name not in self._known
        }
        self._outputs = tuple(value.name for value in model.graph.output)
        self._integers: dict[str, IntegerTensor] = {}
        floats, self._steps = _stages(model, self._known, self._integers, arithmetic)
        needed = set(self._outputs) | {name for step in self._steps_in_order() for name in step.inputs}
        types = dict(self._inputs)
        self._segments: list[_FloatSegment] = []
        for stage, nodes in enumerate(floats):
            later = {name for others in floats[stage + 1 :] for node in others for name in names_read(node)}
            segment = _FloatSegment(model, nodes, self._known, needed | later, threads)
            self._segments.append(segment)
            types.update(segment.open(types))
            types.update({step.output: step.element_type for step in self._steps[stage] if step.integer is None})
        self._types = types
        self._last_stage = {
            name: stage
            for stage, (nodes, steps) in enumerate(zip(floats, self._steps, strict=True))
            for names in (*map(names_read, nodes), *(step.inputs for step in steps))
            for name in names
        }

    def run(self, feeds: Mapping[str, Array], tensors: Sequence[str] = ()) -> dict[str, Array]:
        """One inference.

        Args:
            tensors: further tensors to return: float ones as they are, int8 and int32 ones as the device has them.
                Asking for a float tensor inside the graph builds its session anew, once.

        Returns:
            Output name → array, then the named tensors.

        Raises:
            MeasureError: feeds or names that do not fit the model, NaN before an AscendQuant, a sum beyond int32, or
                ONNX Runtime refuses the values.
        """
        self._check(feeds)
        self._expose(tensors)
        values: Values = {name: np.asarray(array) for name, array in feeds.items()}
        kept = {*self._outputs, *tensors}
        for stage, (segment, steps) in enumerate(zip(self._segments, self._steps, strict=True)):
            segment.run(values)
            for step in steps:
                values[step.output] = step.compute(values)
            for name in [name for name in values if self._last_stage.get(name, 0) <= stage and name not in kept]:
                del values[name]
        return {name: self._value(name, values) for name in dict.fromkeys((*self._outputs, *tensors))}

    def _steps_in_order(self) -> Iterable[Step]:
        return (step for stage in self._steps for step in stage)

    def _value(self, name: str, values: Values) -> Array:
        if name in self._integers:
            return self._integers[name].stored(values[name])
        return values[name] if name in values else array_of(self._known[name])

    def _expose(self, tensors: Sequence[str]) -> None:
        steps = {step.output for step in self._steps_in_order()}
        for name in tensors:
            if name in self._inputs or name in self._known or name in steps:
                continue
            segment = next((segment for segment in self._segments if name in segment.produced), None)
            if segment is None:
                produced = [tensor for segment in self._segments for tensor in segment.produced]
                raise MeasureError(f"The model has no tensor {name!r}. {nearest(name, [*produced, *steps])}")
            if name not in segment.outputs:
                segment.outputs = (*segment.outputs, name)
                segment.open(self._types)

    def _check(self, feeds: Mapping[str, Array]) -> None:
        for name, element_type in self._inputs.items():
            if name not in feeds:
                raise MeasureError(f"Input {name!r} is not fed. {nearest(name, feeds)}")
            wanted = helper.tensor_dtype_to_np_dtype(element_type)
            if feeds[name].dtype != wanted:
                raise MeasureError(f"Input {name!r} is fed {feeds[name].dtype}; the model takes {wanted}.")
        for name in feeds:
            if name not in self._inputs:
                raise MeasureError(f"The model has no input {name!r}. {nearest(name, self._inputs)}")


def _stages(
    model: ModelProto,
    known: Mapping[str, TensorProto],
    integers: dict[str, IntegerTensor],
    arithmetic: Arithmetic,
) -> tuple[list[list[NodeProto]], list[list[Step]]]:
    """Float nodes and integer steps by stage: stage k holds what needs the results of k dequantizations in a row.

    Float nodes of a stage need integer steps of earlier stages only, integer steps also floats of their own stage.
    """
    stage_of: dict[str, int] = {}
    floats: list[list[NodeProto]] = [[]]
    steps: list[list[Step]] = [[]]
    for node in model.graph.node:
        if node.output[0] in known:
            continue
        stage = max((stage_of.get(name, 0) for name in names_read(node)), default=0)
        while len(floats) <= stage:
            floats.append([])
            steps.append([])
        if node.op_type in _ASCEND or any(name in integers for name in node.input):
            step = integer_step(node, known, integers, arithmetic)
            steps[stage].append(step)
            if step.integer is not None:
                integers[step.output] = step.integer
                stage_of[step.output] = stage
            else:
                stage_of[step.output] = stage + 1
        else:
            floats[stage].append(node)
            stage_of.update(dict.fromkeys(node.output, stage))
    return floats, steps


class _FloatSegment:
    """Float operators of one stage in one ONNX Runtime session, without graph optimization: nothing is fused, so that
    which tensors are asked for does not change a value.

    Attributes:
        produced: every tensor its nodes write.
        outputs: those that are needed outside.
    """

    def __init__(
        self,
        model: ModelProto,
        nodes: Sequence[NodeProto],
        known: Mapping[str, TensorProto],
        needed: set[str],
        threads: int,
    ) -> None:
        self._nodes, self._known, self._threads = nodes, known, threads
        self._ir_version, self._opsets = model.ir_version, list(model.opset_import)
        self.produced = tuple(dict.fromkeys(name for node in nodes for name in node.output if name))
        self.outputs = tuple(name for name in self.produced if name in needed)
        self._inputs: tuple[str, ...] = ()
        self._session: ort.InferenceSession | None = None

    def open(self, types: Mapping[str, int]) -> dict[str, int]:
        """Build the session; returns the element type of every output.

        Args:
            types: element type of every tensor from outside that may be read.

        Raises:
            LoweringError: ONNX Runtime refuses the graph.
        """
        if not self.outputs:
            return {}
        read = dict.fromkeys(name for node in self._nodes for name in names_read(node) if name)
        self._inputs = tuple(name for name in read if name in types and name not in self.produced)
        graph = helper.make_graph(
            self._nodes,
            "floats",
            [helper.make_tensor_value_info(name, types[name], None) for name in self._inputs],
            [ValueInfoProto(name=name) for name in self.outputs],
            [_renamed(self._known[name], name) for name in read if name in self._known],
        )
        proto = helper.make_model(graph, opset_imports=self._opsets, ir_version=self._ir_version)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3
        # many sessions take turns: idle workers that spin would slow the one that works
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = session_on(proto, options)
        except RUNTIME_ERRORS as error:
            raise LoweringError(f"ONNX Runtime refuses the float part of the deploy model: {error}") from error
        found = {value.name: value.type for value in self._session.get_outputs()}
        if unknown := [name for name, kind in found.items() if not kind.startswith("tensor(")]:
            raise LoweringError(f"Tensor {unknown[0]!r} is a {found[unknown[0]]}; only plain tensors are interpreted.")
        return {n: TensorProto.DataType.Value(kind[len("tensor(") : -1].upper()) for n, kind in found.items()}

    def run(self, values: Values) -> None:
        """Add this segment's outputs to `values`."""
        if self._session is None:
            return
        try:
            results = self._session.run(self.outputs, {name: values[name] for name in self._inputs})
        except RUNTIME_ERRORS as error:
            raise MeasureError(f"ONNX Runtime failed in the float part of the deploy model: {error}") from error
        values.update(zip(self.outputs, results, strict=True))


def _renamed(tensor: TensorProto, name: str) -> TensorProto:
    if tensor.name == name:
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy
