"""Running an offline model: one gear's kernels on ONNX Runtime, with the values that the device would hold.

The graph with its roundings (rounding.py) and its integer layers (integers.py) becomes one session. Optimizers that
fuse across a rounding, or into whole numbers, are off; fusing inside a kernel is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import onnxruntime as ort
from onnx import ValueInfoProto, helper

from workbench.cann_emulator.integers import NotExpressible, expanded, has_integers
from workbench.cann_emulator.kernel_values import Boundaries, KernelValues
from workbench.cann_emulator.om import OfflineModel, Tensor
from workbench.cann_emulator.rounding import Array, Program, Source, round_to, rounded_program
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.integers.interpreter import Interpreter
from workbench.values.errors import LoweringError, MeasureError

_CHANGES_SUMS = (
    "ConvMulFusion",
    "ConvBNFusion",
    "ConvAddFusion",
    "MatMulScaleFusion",
    "MatMul_BatchNormalization_Fusion",
    "LayerNormFusionL1",
    "LayerNormFusionL2",
)
"""They fold a factor into a layer's weights, which are no whole numbers any more then; or take the rounding in front
of a LayerNorm for a part of it, of which ONNX Runtime 1.31.1 makes a node of two types that it refuses."""


class ExecutionFailed(Exception):
    """The model cannot be run on these values, such as an index out of its table; on the device an AI Core error."""


class _Runs(Protocol):
    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]: ...


class Executable:
    """A model ready to run. Equal feeds give equal bits, whatever ran before. Not for several threads at once.

    Sessions are built at the first run of a gear, and shared by gears whose kernels round alike.

    Args:
        threads: of ONNX Runtime; None takes every core that the process may use.
    """

    def __init__(self, model: OfflineModel, *, threads: int | None = None) -> None:
        self._model = model
        self._threads = threads or len(os.sched_getaffinity(0))
        self._source: Source | None = None
        self._by_gear: dict[int, _Runs] = {}
        self._by_graph: dict[bytes, _Runs] = {}
        self._looking: dict[int, tuple[Boundaries, _Runs]] = {}

    @property
    def sessions(self) -> int:
        """Graphs that were opened so far."""
        return len(self._by_graph)

    def run(self, feeds: Mapping[str, Array], gear: int = 0) -> dict[str, Array]:
        """One inference.

        Args:
            feeds: every input of the model, of its boundary dtype (bfloat16 as uint16 words), the gear input excluded.
            gear: index into `model.gears`.

        Returns:
            Output name → array of its boundary dtype. NaN and infinity are values as any other.

        Raises:
            ExecutionFailed: ONNX Runtime refuses the values, or an operator of the graph.
        """
        runs = self._opened(gear)
        values = {tensor.name: _fed(feeds[tensor.name], tensor) for tensor in self._model.inputs}
        with np.errstate(all="ignore"):
            results = runs.run(values)
            return {tensor.name: _returned(results[tensor.name], tensor) for tensor in self._model.outputs}

    def look(self, feeds: Mapping[str, Array], gear: int = 0) -> tuple[dict[str, Array], tuple[KernelValues, ...]]:
        """One inference, and what every kernel read from and wrote to memory, in the stored dtypes, in execution order.

        A session of its own, in which what crosses a kernel's boundary is an output: ONNX Runtime then fuses less, so
        the last bit of a float32 sum may differ from `run`'s, and with it a rounding. What is dumped and what is
        returned agree.

        Raises:
            ExecutionFailed: as `run`.
        """
        if gear not in self._looking:
            program = self._program(gear)
            boundaries = Boundaries(self._model, gear, program)
            known = {value.name for value in program.outputs}
            more = [name for name in boundaries.made if name not in known]
            runs = _open(program, self._model.truncate_deq_scale, self._threads, more)
            self._looking[gear] = boundaries, runs
        boundaries, runs = self._looking[gear]
        values = {tensor.name: _fed(feeds[tensor.name], tensor) for tensor in self._model.inputs}
        with np.errstate(all="ignore"):
            results = runs.run(values)
            if isinstance(runs, _Session):
                results = boundaries.with_offsets(results)
            outputs = {tensor.name: _returned(results[tensor.name], tensor) for tensor in self._model.outputs}
            return outputs, boundaries.values(feeds, results)

    def _opened(self, gear: int) -> _Runs:
        if gear not in self._by_gear:
            program = self._program(gear)
            key = program.digest()
            if key not in self._by_graph:
                self._by_graph[key] = _open(program, self._model.truncate_deq_scale, self._threads)
            self._by_gear[gear] = self._by_graph[key]
            if len(self._by_gear) == len(self._model.gears):
                self._source = None
        return self._by_gear[gear]

    def _program(self, gear: int) -> Program:
        self._source = self._source or Source(self._model)
        return _with_input_shapes(rounded_program(self._model, gear, self._source), self._model)


def _open(program: Program, truncate: bool, threads: int, more: Sequence[str] = ()) -> _Runs:
    """What runs a program; it gives the tensors `more` beside the outputs."""
    try:
        if has_integers(program):
            try:
                program = expanded(program, truncate_deq_scale=truncate)
            except NotExpressible:
                return _Interpreted(program, truncate, threads, more)
        outputs = (*program.outputs, *(ValueInfoProto(name=name) for name in more))
        return _Session(replace(program, outputs=outputs), threads)
    except LoweringError as error:
        raise ExecutionFailed(str(error)) from error


class _Session:
    """A program as a session of ONNX Runtime, opened when it is first run."""

    def __init__(self, program: Program, threads: int) -> None:
        self._program, self._threads = program, threads
        self._names = [value.name for value in program.outputs]
        self._weights: dict[str, ort.OrtValue] = {}
        self._session: ort.InferenceSession | None = None

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            session = self._session = self._session or self._opened()
            results: list[Array] = session.run(self._names, _taken(feeds, self._program))
        except RUNTIME_ERRORS as error:
            raise ExecutionFailed(str(error)) from error
        return dict(zip(self._names, results, strict=True))

    def _opened(self) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 4  # a failing kernel is told by ExecutionFailed, not on the console
        skeleton, weights = self._program.skeleton()
        # they share memory with the arrays, which live as long as the session for that
        self._weights = {name: ort.OrtValue.ortvalue_from_numpy(values) for name, values in weights.items()}
        options.add_external_initializers(list(self._weights), list(self._weights.values()))
        return ort.InferenceSession(
            skeleton.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=list(_CHANGES_SUMS),
        )


class _Interpreted:
    """A model with integer layers that only the interpreter covers, such as AveragePool."""

    def __init__(self, program: Program, truncate: bool, threads: int, more: Sequence[str]) -> None:
        self._program, self._more = program, list(more)
        self._interpreter = Interpreter(program.proto(), truncate_deq_scale=truncate, threads=threads)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return self._interpreter.run(_taken(feeds, self._program), self._more)
        except MeasureError as error:
            raise ExecutionFailed(str(error)) from error


def _with_input_shapes(program: Program, model: OfflineModel) -> Program:
    """Static shapes where the model has them, so that shape computations fold; else any."""
    shapes = {tensor.name: tensor.shape for tensor in model.inputs}
    inputs = []
    for value in program.inputs:
        dims = [d if d >= 0 else f"{value.name}_{axis}" for axis, d in enumerate(shapes[value.name])]
        inputs.append(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, dims))
    outputs = [helper.make_tensor_value_info(v.name, v.type.tensor_type.elem_type, None) for v in program.outputs]
    return replace(program, inputs=tuple(inputs), outputs=tuple(outputs))


def _taken(feeds: Mapping[str, Array], program: Program) -> dict[str, Array]:
    """In the graph's own types: the boundary may have int32 where the file says int64."""
    kinds = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in program.inputs}
    return {name: feeds[name].astype(kind, copy=False) for name, kind in kinds.items()}


def _fed(values: Array, tensor: Tensor) -> Array:
    if tensor.dtype == "bfloat16":
        return (values.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32) if tensor.dtype == "float16" else values


def _returned(values: Array, tensor: Tensor) -> Array:
    if tensor.dtype == "bfloat16":
        return (round_to(values.astype(np.float32), "bfloat16").view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.require(values.astype(tensor.dtype, copy=False), requirements="C")  # a scalar stays one
