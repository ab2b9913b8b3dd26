"""A reference interpreter of deploy models: what the INT8 arithmetic gives, exactly, without the device (amct.md §6).

ONNX Runtime has no AscendQuant, and its integer kernels may saturate where the CPU lacks the right instructions. So the
model becomes one of float operators, which the runtime computes as they stand:

    AscendQuant          Mul ─► Round ─► Clip: q - offset, a whole number, of which zero padding is real zero (§6.5)
    layers, biases       the same operators on whole numbers, in a type in which their sums are exact
    AscendDequant        Mul

A sum of whole numbers whose magnitudes add up to at most 2**24 is exact in float32, whatever the order of additions; up
to 2**53 in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, attributes_of
from workbench.graph.read import constants, feedable
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.lowering.deploy import ANTI_QUANT, DEQUANT, FP16_FACTOR_MASK, QUANT
from workbench.quantization.lowering.surgery import rewired
from workbench.quantization.record import as_half
from workbench.quantization.sessions import session_on
from workbench.values.errors import LoweringError, MeasureError, nearest

Array = npt.NDArray[Any]

EXACT_FLOAT32, EXACT_FLOAT64 = float(2**24), float(2**53)
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_LARGEST_SHIFT = 16  # amct.md §4.7
_ROUNDINGS = ("Round", "Floor", "Ceil", "Trunc")
_DTYPES = {0: TensorProto.FLOAT, 1: TensorProto.FLOAT16}  # GE's numbers (amct.md §6.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """A tensor between AscendQuant and AscendDequant.

    Attributes:
        kind: 'mean' is what AveragePool leaves: no whole numbers.
        bound: no magnitude is larger; infinite where only the feeds tell.
        offset: of int8 values, which are held as q - offset.
        places: axes behind that of the channels.
        double: held in float64.
    """

    kind: Literal["int8", "int32", "mean"]
    bound: float
    offset: int = 0
    places: int = 0
    double: bool = False


class Interpreter:
    """Runs one deploy model (`deploy.lower_deploy`, or AMCT's own). Equal feeds give equal bits, on any CPU for the
    integers; dynamic dimensions are free.

    Args:
        truncate_deq_scale: AscendDequant's factors lose their low 13 bits, as on chips with fixpipe; for 910B3 that is
            [inferred] (amct.md §6.6).
        force_fp16: the arithmetic of AMCT's FORCE_FP16_QUANT simulation (amct.md §6.6): both ends compute in half
            precision, factors are truncated too.
        threads: of ONNX Runtime.

    Raises:
        LoweringError: an integer tensor meets an operator, attribute or constant that the deploy form does not have,
            or the float part is not valid ONNX.
    """

    def __init__(
        self, model: ModelProto, *, truncate_deq_scale: bool = False, force_fp16: bool = False, threads: int = 1
    ) -> None:
        self._model, self._threads, self._half = model, threads, force_fp16
        self._truncated = truncate_deq_scale or force_fp16
        self._inputs = {value.name: value.type.tensor_type.elem_type for value in feedable(model.graph)}
        self._outputs = [value.name for value in model.graph.output]
        self._known, self._names = constants(model), Names(model.graph)
        self._nodes: list[NodeProto] = []
        self._whole: dict[str, _Whole] = {}
        self._checks: dict[str, tuple[float, float, str]] = {}
        """Scalar tensor → the range that it must lie in, and what is wrong beyond."""
        self._constants: list[TensorProto] = []
        for node in model.graph.node:
            self._take(node, attributes_of(node))
        self._shown: list[str] = []
        self._session = self._opened()

    def run(self, feeds: Mapping[str, Array], tensors: Sequence[str] = ()) -> dict[str, Array]:
        """One inference.

        Args:
            tensors: further tensors to return: float ones as they are, int8 and int32 ones as the device has them.
                Asking for one inside the graph builds the session anew, once.

        Returns:
            Output name → array, then the named tensors.

        Raises:
            MeasureError: feeds or names that do not fit the model, NaN before an AscendQuant, a sum beyond int32, or
                ONNX Runtime refuses the values.
        """
        self._check(feeds)
        made = {name for node in self._nodes for name in node.output}
        given = self._inputs.keys() | self._known.keys()
        if unknown := [name for name in tensors if name not in made | given]:
            raise MeasureError(f"The model has no tensor {unknown[0]!r}. {nearest(unknown[0], made)}")
        wanted = [name for name in dict.fromkeys((*self._outputs, *tensors)) if name not in given]
        if more := [name for name in wanted if name not in (*self._outputs, *self._shown)]:
            self._shown += more
            self._session = self._opened()
        checks = list(self._checks)
        try:
            values = dict(zip((*wanted, *checks), self._session.run([*wanted, *checks], dict(feeds)), strict=True))
        except RUNTIME_ERRORS as error:
            raise MeasureError(f"ONNX Runtime failed in the float part of the deploy model: {error}") from error
        for name, (low, high, words) in self._checks.items():
            if values[name].size and not low <= values[name] <= high:
                raise MeasureError(words.format(float(values[name])))
        for name in (name for name in wanted if name in self._whole):
            whole = self._whole[name]
            kind = {"int8": np.int8, "int32": np.int32, "mean": np.float32}[whole.kind]
            values[name] = (values[name] + whole.offset).astype(kind)
        values |= {name: feeds[name] if name in feeds else array_of(self._known[name]) for name in given & {*tensors}}
        return {name: values[name] for name in dict.fromkeys((*self._outputs, *tensors))}

    def plain(self) -> ModelProto:
        """The model in float operators, as it is run: AMCT's fake-quant model."""
        return self._in_floats(self._outputs)

    def _in_floats(self, outputs: Sequence[str]) -> ModelProto:
        proto = ModelProto(ir_version=self._model.ir_version, opset_import=self._model.opset_import)
        graph, given = proto.graph, self._model.graph
        graph.name = given.name or "deploy"
        graph.node.extend(self._nodes)
        graph.initializer.extend((*given.initializer, *self._constants))
        graph.input.extend(given.input)
        graph.output.extend(ValueInfoProto(name=name) for name in outputs)
        return proto

    def _opened(self) -> onnxruntime.InferenceSession:
        """Without graph optimization nothing is fused, so that which tensors are asked for does not change a value."""
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            return session_on(self._in_floats([*self._outputs, *self._shown, *self._checks]), options)
        except RUNTIME_ERRORS as error:
            raise LoweringError(f"ONNX Runtime refuses the float part of the deploy model: {error}") from error

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

    # --- the model in float operators ---

    def _take(self, node: NodeProto, attributes: Mapping[str, Any]) -> None:
        ascend = node.op_type in (QUANT, DEQUANT, ANTI_QUANT)
        if ascend and attributes.get("sqrt_mode", 0):
            raise LoweringError(
                f"{node.name}: sqrt_mode is not interpreted. Write the factor itself, with sqrt_mode 0."
            )
        if node.op_type == QUANT:
            self._quantize(node, attributes)
            return
        if not ascend and self._whole.keys().isdisjoint(node.input):
            self._nodes.append(node)
            return
        first = self._whole.get(node.input[0])
        if first is None:
            raise LoweringError(f"{node.name}: {node.op_type} reads {node.input[0]!r}, which no AscendQuant leads to.")
        match node.op_type, first.kind:
            case "AscendDequant", _:
                self._dequantize(node, attributes, first)
            case "AscendAntiQuant", _:
                self._anti_quantize(node, attributes, first)
            case "AveragePool", "int8":
                self._nodes.append(node)
                places = len(attributes["kernel_shape"])
                self._whole[node.output[0]] = _Whole(kind="mean", bound=first.bound, places=places)
            case "MatMul", "int8" if node.input[1] in self._whole:  # only the feeds tell how many terms a sum has
                self._nodes.append(rewired(node, [self._cast(name, TensorProto.DOUBLE) for name in node.input]))
                self._keep(node, node.output[0], _Whole(kind="int32", bound=math.inf, double=True))
            case (("MatMul" | "Gemm" | "Conv" | "ConvTranspose"), "int8"):
                self._multiply(node, attributes, first)
            case "Add", "int32":
                self._add(node, node.input[0], 1)
            case _:
                raise LoweringError(
                    f"{node.name}: {node.op_type} on {first.kind} values is not part of a deploy model (amct.md §6)."
                )

    # --- Ascend's operators ---

    def _quantize(self, node: NodeProto, attributes: Mapping[str, Any]) -> None:
        given = (attributes.get(key, default) for key, default in (("dst_type", b"INT8"), ("round_mode", b"Round")))
        kind, mode = (value.decode() if isinstance(value, bytes) else value for value in given)
        if kind != "INT8":
            raise LoweringError(f"{node.name}: dst_type {kind} is not interpreted, only INT8.")
        if mode not in _ROUNDINGS:
            raise LoweringError(f"{node.name}: round_mode {mode!r} is unknown. Valid: {', '.join(_ROUNDINGS)}.")
        scale, offset = np.float32(attributes.get("scale", 0.0)), float(attributes.get("offset", 0.0))
        if not offset.is_integer() or not -128 <= offset <= 127:
            raise LoweringError(f"{node.name}: offset {offset:g} is no whole number from -128 to 127.")
        x = self._cast(node.input[0], TensorProto.FLOAT)
        nan = self._add_node("ReduceSum", self._cast(self._add_node("IsNaN", x), TensorProto.FLOAT), keepdims=0)
        self._checks[nan] = (0, 0, f"{node.name}: its input {node.input[0]!r} holds NaN.")
        if self._half:  # every step in half precision, the offset before the rounding (amct.md §6.6)
            scaled = self._add_node("Mul", self._as_half(x), self._constant(np.float32(as_half(float(scale)))))
            x = self._as_half(self._add_node("Add", self._as_half(scaled), self._constant(np.float32(offset))))
        else:
            x = self._add_node("Mul", x, self._constant(scale))
        if mode == "Trunc":
            x = self._add_node("Mul", self._add_node("Sign", x), self._add_node("Floor", self._add_node("Abs", x)))
        else:
            x = self._add_node(mode, x)
        if self._half:
            x = self._add_node("Sub", x, self._constant(np.float32(offset)))
        low, high = -128 - offset, 127 - offset  # clip(q + offset, -128, 127) - offset
        limits = self._constant(np.float32(low)), self._constant(np.float32(high))
        self._add_node("Clip", x, *limits, output=node.output[0])
        self._whole[node.output[0]] = _Whole(kind="int8", bound=max(abs(low), abs(high)), offset=int(offset))

    def _dequantize(self, node: NodeProto, attributes: Mapping[str, Any], first: _Whole) -> None:
        param = self._constant_of(node, 1)
        if param.dtype != np.uint64 or param.ndim != 1 or (param >> np.uint64(32)).max(initial=0) > _LARGEST_SHIFT:
            raise LoweringError(
                f"{node.name}: its parameter {node.input[1]!r} is no vector of uint64 words with a float32 factor in "
                f"bits 31:0 and a shift of 0 to {_LARGEST_SHIFT} above."
            )
        dtype = int(attributes.get("dtype", 0))
        if dtype not in _DTYPES:
            raise LoweringError(f"{node.name}: dtype {dtype} is not interpreted, only 0 (float32) and 1 (float16).")
        bits = (param & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        bits &= np.uint32(FP16_FACTOR_MASK if self._truncated else 0xFFFFFFFF)
        along = [-1, *[1] * first.places]
        factors = self._constant(bits.view(np.float32).reshape(along))
        shifts = np.ldexp(1.0, (param >> np.uint64(32)).astype(np.int32)).reshape(along)
        x, shifted = node.input[0], bool((shifts != 1).any())
        if shifted:  # amct.md §6.6: a channel with shift 0 keeps its int32
            wide = self._cast(x, TensorProto.DOUBLE)
            narrow = self._add_node("Floor", self._add_node("Div", wide, self._constant(shifts)))
            narrow = self._add_node("Max", narrow, self._constant(np.float64(-(2**15))))
            narrow = self._add_node("Min", narrow, self._constant(np.float64(2**15 - 1)))
            x = self._add_node("Where", self._constant(shifts == 1), wide, narrow)
        x = self._add_node("Mul", self._cast(x, TensorProto.FLOAT), factors)
        if shifted:
            x = self._add_node("Mul", x, self._constant(shifts.astype(np.float32)))
        if attributes.get("relu_flag", 0):
            x = self._add_node("Relu", x)
        if self._half:
            x = self._as_half(x)
        self._cast(x, _DTYPES[dtype], node.output[0])

    def _anti_quantize(self, node: NodeProto, attributes: Mapping[str, Any], first: _Whole) -> None:
        """(q - offset) · scale: ATC's plugin negates the ONNX offset (amct.md §6.2)."""
        if first.kind != "int8" or attributes.get("dtype", 0):
            raise LoweringError(f"{node.name}: only int8 to float32 (dtype 0) is interpreted.")
        difference = np.float32(first.offset - float(attributes.get("offset", 0.0)))
        moved = self._add_node("Add", node.input[0], self._constant(difference))
        self._add_node("Mul", moved, self._constant(np.float32(attributes.get("scale", 0.0))), output=node.output[0])

    # --- layers ---

    def _multiply(self, node: NodeProto, attributes: Mapping[str, Any], first: _Whole) -> None:
        plain = attributes.get("alpha", 1.0) == 1.0 == attributes.get("beta", 1.0) and not attributes.get("transA", 0)
        if not plain:
            raise LoweringError(f"{node.name}: a Gemm of a deploy model has alpha = beta = 1 and transA = 0.")
        weight, convolves = self._constant_of(node, 1, np.int8, "weight"), "Conv" in node.op_type
        bound, places = _bound(node, weight, first), weight.ndim - 2 if convolves else 0
        has_bias = node.op_type != "MatMul" and len(node.input) > 2 and bool(node.input[2])
        product = self._names.fresh(f"{node.output[0]}_product") if has_bias else str(node.output[0])
        most, double = bound / EXACT_FLOAT64, bound > EXACT_FLOAT32
        if not (double and convolves):
            kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
            self._nodes.append(rewired(node, [self._cast(name, kind) for name in node.input[:2]], [product]))
        else:  # there is no kernel in float64: sixteenths of the weights, and what is left
            upper = np.rint(weight / 16)
            most = max(_bound(node, part, first) for part in (upper, weight - 16 * upper)) / EXACT_FLOAT32
            sixteen, stored = self._constant(np.float32(16)), self._cast(node.input[1], TensorProto.FLOAT)
            above = self._add_node("Round", self._add_node("Div", stored, sixteen))
            below = self._add_node("Sub", stored, self._add_node("Mul", above, sixteen))
            sums = [self._names.fresh(f"{product}_part") for _ in range(2)]
            for part, total in zip((above, below), sums, strict=True):
                self._nodes.append(rewired(node, [node.input[0], part], [total]))
                self._nodes[-1].name = total
            above, below = (self._cast(total, TensorProto.DOUBLE) for total in sums)
            wide = self._add_node("Mul", above, self._constant(np.float64(16)))
            self._add_node("Add", wide, below, output=product)
        if most > 1:
            raise LoweringError(f"{node.name}: sums may reach {bound:.3g}, of which no exact sum is possible here.")
        self._keep(node, product, _Whole(kind="int32", bound=bound, places=places, double=double))
        if has_bias:
            self._add(node, product, 2)

    def _add(self, node: NodeProto, x: str, position: int) -> None:
        bias, first = self._constant_of(node, position, np.int32, "bias").astype(np.float64), self._whole[x]
        total = first.bound + float(np.abs(bias).max(initial=0.0))
        made = replace(first, bound=total, double=first.double or total > EXACT_FLOAT32)
        bias = bias.reshape(-1, *[1] * made.places) if made.places else bias
        x = self._cast(x, TensorProto.DOUBLE) if made.double else x
        self._add_node(
            "Add", x, self._constant(bias if made.double else bias.astype(np.float32)), output=node.output[0]
        )
        self._keep(node, node.output[0], made)

    def _keep(self, node: NodeProto, sums: str, made: _Whole) -> None:
        """Sums that the device's int32 would not hold are refused."""
        self._whole[sums] = made
        if sums == node.output[0] and made.bound > _INT32_MAX:
            words = f"{node.name}: a sum reaches {{:.0f}}, outside int32. The device would wrap or saturate; "
            for reduce in ("ReduceMin", "ReduceMax"):
                found = self._add_node(reduce, sums, keepdims=0)
                self._checks[found] = (_INT32_MIN, _INT32_MAX, f"{words}keep this layer in float.")

    # --- nodes ---

    def _constant_of(self, node: NodeProto, position: int, kind: type | None = None, what: str = "") -> Array:
        if len(node.input) <= position or node.input[position] not in self._known:
            raise LoweringError(f"{node.name}: {node.op_type} needs a constant as input {position}.")
        values = array_of(self._known[node.input[position]])
        if kind is not None and values.dtype != kind:
            wanted = np.dtype(kind).name
            raise LoweringError(f"{node.name}: its {what} {node.input[position]!r} is {values.dtype}, not {wanted}.")
        return values

    def _constant(self, values: Array | np.generic) -> str:
        name = self._names.fresh("deploy_constant")
        self._constants.append(tensor_of(np.asarray(values), name))
        return name

    def _add_node(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or self._names.fresh(f"{inputs[0]}_{op_type}")
        self._nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def _cast(self, name: str, kind: int, output: str = "") -> str:
        return self._add_node("Cast", name, output=output, to=kind)

    def _as_half(self, name: str) -> str:
        """Rounded to float16, in float32; beyond its range infinite, which the clipping takes care of."""
        return self._cast(self._cast(name, TensorProto.FLOAT16), TensorProto.FLOAT)


def _bound(node: NodeProto, weight: Array, first: _Whole) -> float:
    """No sum of magnitudes over a layer's inputs is larger."""
    attributes, magnitudes = attributes_of(node), np.abs(weight.astype(np.int16))
    axes: tuple[int, ...] = (-2 if weight.ndim > 1 and not attributes.get("transB", 0) else -1,)
    if node.op_type == "Conv":
        axes = tuple(range(1, weight.ndim))
    elif node.op_type == "ConvTranspose":
        axes = (1, *range(3, weight.ndim + 1))
        magnitudes = magnitudes.reshape(int(attributes.get("group", 1)), -1, *weight.shape[1:])
    return first.bound * float(magnitudes.sum(axis=axes, dtype=np.float64).max(initial=0.0))
