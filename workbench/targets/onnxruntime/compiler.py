"""Compiling for ONNX Runtime: its graph optimizer in a child process, rewrites of our own, a count of the kernels.

The optimized graph is saved and later loaded with all optimizations off, so that what was counted is what runs. On
1.31.1 a reloaded file gives bit-equal outputs at equal speed, at every level; weights are prepacked when a session
opens, whatever the level.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import ModelProto

from workbench.graph.read import graph_of, load_graph, read_model
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.graph.write import write_model, write_shared
from workbench.quantization.lowering.qdq import lower_dynamic
from workbench.quantization.sessions import exact
from workbench.targets.apart import compile_apart
from workbench.targets.onnxruntime.attention import fuse_attention
from workbench.targets.onnxruntime.fusions import fused
from workbench.targets.onnxruntime.projections import layers_of, with_convolutions, with_split_transposes
from workbench.targets.onnxruntime.settings import ONNXRUNTIME_FUSIONS, GraphOptimization, OnnxRuntimeCompile
from workbench.targets.onnxruntime.simplify import simplified
from workbench.values.candidate import Candidate
from workbench.values.errors import CompileError, ConfigError, LoweringError
from workbench.values.system.files import temporary_beside
from workbench.values.system.scratch import scratch_folder

COMPILED = "model.onnx"
LOG = "compile.log"

INT8_KERNELS = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearAveragePool",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators of layers in integers. The runtime itself turns the standard forms into the com.microsoft ones."""

FLOAT_KERNELS = frozenset(
    {
        "Attention",
        "AveragePool",
        "Conv",
        "ConvTranspose",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "FusedMatMulActivation",
        "Gemm",
        "MatMul",
        "MultiHeadAttention",
        "NhwcConv",
        "NhwcFusedConv",
        "TransposeMatMul",
    }
)
"""Operators of layers that could be INT8 and compute in float, the fused forms that contain such a product included.
AveragePool is among them because AMCT quantizes it (amct.md §5)."""

_ALWAYS_OFF_FOR_INT8 = ("MatMulAddFusion",)
# With fixed dimensions it rewrites MatMul + Add to Reshape + Gemm before Q/DQ are read, and a Gemm between float
# operators stays float (onnxruntime 1.31.1).

_OFF_FOR_FAST_PRODUCTS = ("QDQS8ToU8Transformer",)
# It makes the int8 second factor of a product of activations uint8, whose kernel takes 1.8 times as long (393 against
# 221 µs for 96 products of 64 x 32 x 64, onnxruntime 1.31.1). Right only where U8S8 saturates.

_PROJECTIONS, _FLOAT_PRODUCTS = 3, 2  # inside a QAttention: query, key, value; scores, context
_INFO = 1  # the severity at which the optimizer tells which transformers changed the graph
_MODIFIED = re.compile(r"GraphTransformer (\w+) modified: 1 ")


def optimize(lowered: Path, candidate: Candidate, to: Path, *, saturates: bool = False) -> ModelProto:
    """Write `COMPILED` and `LOG` below `to` and return the compiled graph.

    The log holds the runtime's messages from INFO on, which say which fusions fired.

    Args:
        saturates: the CPU's kernels for uint8 by int8 may saturate; second operands are uint8 then.

    Raises:
        CompileError: the runtime refused the model, crashed or took too long (the last two are transient).
    """
    log_path = to / LOG
    settings = OnnxRuntimeCompile.of(candidate)
    disabled = set(settings.disabled_fusions)
    quantized = candidate.quantization.scheme != "none"
    if quantized:
        disabled.update(_ALWAYS_OFF_FOR_INT8)
        if not saturates:
            disabled.update(_OFF_FOR_FAST_PRODUCTS)
    raw = to / f"{settings.graph_optimization}.onnx"
    try:
        log = _run_optimizer(lowered, to, settings.graph_optimization, sorted(disabled), log_path)
        model = graph_of(raw)
        if quantized:
            model, notes = _with_own_fusions(model)
            lines = "".join(f"workbench: {note}\n" for note in notes)
            log_path.write_text(f"{log.rstrip()}\n{lines}", encoding="utf-8")
        try:
            with temporary_beside(to / COMPILED, durable=False) as draft:
                write_shared(exact(model) if saturates else model, draft)
        except ConfigError as error:
            raise CompileError(str(error), log_path=log_path) from error
    finally:
        raw.unlink(missing_ok=True)
        raw.with_name(f"{raw.name}.data").unlink(missing_ok=True)
    return model


def _with_own_fusions(model: ModelProto) -> tuple[ModelProto, list[str]]:
    """The model after every fusion of ours, and what there is to say about it."""
    model = fused(model)
    notes = []
    try:
        simple = simplified(model)
        notes.append(f"{len(model.graph.node) - len(simple.graph.node)} nodes of shapes and masks less")
        model, note = fuse_attention(simple)
        notes.append(note)
    except RUNTIME_ERRORS as error:
        notes.append(f"shapes, masks and self-attentions stay, the model does not run with ids of 0 and 1: {error}")
    return with_split_transposes(with_convolutions(model)), notes


def count_kernels(model: ModelProto) -> tuple[int, int, Mapping[str, int]]:
    """(integer products, float products, operator type → count) of a compiled graph.

    A QAttention is three integer products and two of floats; a QLinearConv of several layers is as many.
    """
    kernels = Counter(node.op_type for node in model.graph.node)
    int8_ops = sum(count for kind, count in kernels.items() if kind in INT8_KERNELS)
    int8_ops += (_PROJECTIONS - 1) * kernels["QAttention"]
    int8_ops += sum(layers_of(node) - 1 for node in model.graph.node if node.op_type == "QLinearConv")
    float_matmuls_left = sum(count for kind, count in kernels.items() if kind in FLOAT_KERNELS)
    float_matmuls_left += _FLOAT_PRODUCTS * kernels["QAttention"]
    return int8_ops, float_matmuls_left, dict(sorted(kernels.items()))


def fusions_that_fire(model_path: Path) -> tuple[str, ...]:
    """Names of `ONNXRUNTIME_FUSIONS` that change this float model or its dynamic INT8 form, sorted.

    Only these are worth a switch in a search space. Both forms are tried, since some fusions match one of them only.

    Raises:
        ConfigError: the model cannot be read.
        CompileError: the runtime refused it.
    """
    with scratch_folder("fusions") as folder:
        fired = _fired(model_path, folder)
        try:
            quantized = lower_dynamic(load_graph(read_model(model_path)), "tensor")
        except LoweringError:  # without INT8 layers it has only its float form
            return fired
        write_model(quantized, folder / "dynamic.onnx")
        return tuple(sorted({*fired, *_fired(folder / "dynamic.onnx", folder, _ALWAYS_OFF_FOR_INT8)}))


def _fired(model_path: Path, folder: Path, disabled: Sequence[str] = ()) -> tuple[str, ...]:
    log = _run_optimizer(model_path, folder, "all", disabled, folder / LOG)
    return tuple(sorted(set(_MODIFIED.findall(log)) & set(ONNXRUNTIME_FUSIONS)))


def _run_optimizer(lowered: Path, to: Path, level: GraphOptimization, disabled: Sequence[str], log: Path) -> str:
    """Write `LEVEL.onnx` below `to`; returns the child's log, which is kept too.

    Raises:
        CompileError: as `compile_apart`.
    """
    program = Path(__file__).with_name("optimize.py")
    arguments = [str(lowered), str(to), level, str(_INFO), *disabled]
    return compile_apart("ONNX Runtime", program, arguments, log, lambda text: (text.strip().splitlines() or [""])[-1])
