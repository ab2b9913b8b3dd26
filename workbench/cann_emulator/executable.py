"""Running an offline model: one gear's kernels on ONNX Runtime, with the values that the device would hold.

The graph with its roundings (rounding.py) becomes one session. Optimizers that fuse across a rounding are off; fusing
inside a kernel is allowed. A graph with integer layers is run by the reference interpreter of deploy models.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, ValueInfoProto, helper

from workbench.cann_emulator import rounding
from workbench.cann_emulator.dump_file import KernelValues, Values
from workbench.cann_emulator.om import OfflineModel, Tensor
from workbench.cann_emulator.rounding import Array, Program, Source, stored, widened
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.interpreter import Interpreter
from workbench.quantization.lowering.deploy import ANTI_QUANT, DEQUANT, QUANT
from workbench.values.errors import LoweringError, MeasureError

_OFF = ("LayerNormFusionL1", "LayerNormFusionL2")
"""They take the rounding in front of a LayerNorm for a part of it, of which ONNX Runtime 1.31.1 makes a node of two
types that it refuses."""


class ExecutionFailed(Exception):
    """The model cannot be run on these values, such as an index out of its table; on the device an AI Core error."""


_FAILURES: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, MeasureError)
_INLINE_BYTES = 1024
"""Smaller constants stay in the graph: shape computations and optimizers look at them."""
_Run = Callable[[Mapping[str, Array]], dict[str, Array]]
_Look = Callable[[Mapping[str, Array], Mapping[str, Array]], tuple[KernelValues, ...]]


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
        self._by_gear: dict[int, _Run] = {}
        self._by_graph: dict[bytes, _Run] = {}
        self._looking: dict[int, tuple[_Look, _Run]] = {}

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
        return self._finished(self._opened(gear), feeds)[0]

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
            made, values = _boundaries(self._model, gear, program)
            known = {value.name for value in program.outputs}
            more = [name for name in made if name not in known]
            self._looking[gear] = values, _open(program, self._model.truncate_deq_scale, self._threads, more)
        values, runs = self._looking[gear]
        outputs, results = self._finished(runs, feeds)
        with np.errstate(all="ignore"):
            return outputs, values(feeds, results)

    def _finished(self, run: _Run, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        with np.errstate(all="ignore"):
            results = run({tensor.name: widened(feeds[tensor.name], tensor.dtype) for tensor in self._model.inputs})
            outputs = {tensor.name: stored(results[tensor.name], tensor.dtype) for tensor in self._model.outputs}
            return outputs, results

    def _opened(self, gear: int) -> _Run:
        if gear not in self._by_gear:
            program = self._program(gear)
            # a constant's name tells its values: programs of one model that are equal so compute the same
            key = hashlib.sha256(program.proto(_INLINE_BYTES)[0].SerializeToString(deterministic=True)).digest()
            if key not in self._by_graph:
                self._by_graph[key] = _open(program, self._model.truncate_deq_scale, self._threads)
            self._by_gear[gear] = self._by_graph[key]
            if len(self._by_gear) == len(self._model.gears):
                self._source = None
        return self._by_gear[gear]

    def _program(self, gear: int) -> Program:
        self._source = self._source or Source(self._model)
        return rounding.rounded_program(self._model, gear, self._source)


def _open(program: Program, truncate: bool, threads: int, more: Sequence[str] = ()) -> _Run:
    """What runs a program; it gives the tensors `more` beside the outputs, int8 values as the device stores them."""
    if not any(node.op_type in (QUANT, DEQUANT, ANTI_QUANT) for node in program.nodes):
        return _session(program, threads, more)
    try:
        interpreter = Interpreter(program.proto()[0], truncate_deq_scale=truncate, threads=threads)
    except LoweringError as error:
        raise ExecutionFailed(str(error)) from error
    return lambda feeds: _told(lambda: interpreter.run(_taken(feeds, program), list(more)))


def _session(program: Program, threads: int, more: Sequence[str]) -> _Run:
    names = [*(value.name for value in program.outputs), *more]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # a failing kernel is told by ExecutionFailed, not on the console
    outputs = (*program.outputs, *(ValueInfoProto(name=name) for name in more))
    skeleton, constants = replace(program, outputs=outputs).proto(_INLINE_BYTES)
    # they share memory with the arrays, which live as long as the session for that
    weights = {name: ort.OrtValue.ortvalue_from_numpy(values) for name, values in constants.items()}
    options.add_external_initializers(list(weights), list(weights.values()))
    session = _told(
        lambda: ort.InferenceSession(
            skeleton.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=list(_OFF),
        )
    )

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        results = _told(lambda: session.run(names, _taken(feeds, program)))
        return dict(zip(names, results, strict=True))

    return run


def _told(work: Callable[[], Any]) -> Any:
    """What comes of some work, whose errors are those of an execution."""
    try:
        return work()
    except _FAILURES as error:
        raise ExecutionFailed(str(error)) from error


def _taken(feeds: Mapping[str, Array], program: Program) -> dict[str, Array]:
    """In the graph's own types: the boundary may have int32 where the file says int64."""
    kinds = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in program.inputs}
    return {name: feeds[name].astype(kind, copy=False) for name, kind in kinds.items()}


def _boundaries(model: OfflineModel, gear: int, program: Program) -> tuple[list[str], _Look]:
    """The tensors of a rounded program that its nodes make and kernels of the gear read or write; and what gives the
    values of every kernel that is launched (views and constants are none), after fusion and in the stored dtypes, from
    the program's feeds and results. In the program every number that a narrow type holds is exact."""
    kernels = model.gears[gear].kernels
    proto = ModelProto()
    proto.ParseFromString(model.graph)
    makers, origins = (
        {name: (node.name, index) for node in nodes for index, name in enumerate(node.output) if name}
        for nodes in (program.nodes, proto.graph.node)
    )
    fed = {value.name for value in program.inputs}
    sources = rounding.graph_tensors(kernels, {*makers, *fed, *program.constants, *origins})

    def place(tensor: Tensor) -> str:
        source = sources.get(tensor.name, tensor.name)
        full = f"{source}__full"  # rounding.py: an output that leaves the device in a narrower type
        return full if tensor.dtype == "float32" and full in makers else source

    crossing = (place(tensor) for kernel in kernels for tensor in (*kernel.inputs, *kernel.outputs))
    made = dict.fromkeys(name for name in crossing if name in makers)
    inside: dict[str, list[str]] = {kernel.name: [] for kernel in kernels}
    kernel_of = {node: kernel.name for kernel in kernels for node in kernel.nodes}
    for name, (node, _) in origins.items():
        if node in kernel_of and name not in made and makers.get(name, ("", 0))[0].endswith(rounding.BACK):
            inside[kernel_of[node]].append(name)

    def values(feeds: Mapping[str, Array], results: Mapping[str, Array]) -> tuple[KernelValues, ...]:
        known = {**program.constants, **feeds, **results}

        def held(tensor: Tensor) -> Values | None:
            if (at := place(tensor)) not in known:
                return None  # folded away in this program
            origin = origins.get(sources.get(tensor.name, tensor.name))
            array = stored(known[at], tensor.dtype)
            return Values(array=array, dtype=tensor.dtype, format=tensor.format, origin=origin)

        return tuple(
            KernelValues(
                kernel=kernel,
                task=task,
                inputs=tuple(filter(None, map(held, kernel.inputs))),
                outputs=tuple(filter(None, map(held, kernel.outputs))),
                inside=tuple(Values(array=known[name], dtype="float16") for name in inside[kernel.name]),
            )
            for task, kernel in enumerate(kernels)
            if kernel.core != "none"
        )

    return [*made, *(name for names in inside.values() for name in names)], values
