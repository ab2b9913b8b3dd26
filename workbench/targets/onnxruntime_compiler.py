"""Compiling for ONNX Runtime: its graph optimizer in a child process, one fusion of our own, a count of the kernels.

The optimized graph is saved and later loaded with all optimizations off, so that what was counted is what runs. On
1.31.1 a reloaded file gives bit-equal outputs at equal speed, at every level; weights are prepacked when a session
opens, whatever the level.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import ModelProto, NodeProto

from workbench.candidate import ONNXRUNTIME_FUSIONS, Candidate, GraphOptimization, OnnxRuntimeCompile
from workbench.errors import CompileError, LoweringError
from workbench.graph import load_graph, read_model
from workbench.quantization.dynamic import lower_dynamic
from workbench.quantization.surgery import replace_nodes, serialize

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
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators that multiply integers. The runtime itself turns the standard forms into the com.microsoft ones."""

FLOAT_KERNELS = frozenset(
    {
        "Attention",
        "Conv",
        "ConvTranspose",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "FusedMatMulActivation",
        "Gemm",
        "MatMul",
        "MultiHeadAttention",
        "NhwcFusedConv",
        "TransposeMatMul",
    }
)
"""Operators that multiply floats, the fused forms that contain such a product included."""

_ALWAYS_OFF_FOR_INT8 = ("MatMulAddFusion",)
# With fixed dimensions it rewrites MatMul + Add to Reshape + Gemm before Q/DQ are read, and a Gemm between float
# operators stays float (onnxruntime 1.31.1; a test repeats it). Can go when that test fails.

_BIAS = 6  # position in MatMulIntegerToFloat: A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias
_TIMEOUT_S = 900.0
_INFO = 1  # the severity at which the optimizer tells which transformers changed the graph
_MODIFIED = re.compile(r"GraphTransformer (\w+) modified: 1 ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def optimize(lowered: Path, candidate: Candidate, to: Path) -> ModelProto:
    """Write `COMPILED` and `LOG` below `to` and return the compiled graph.

    The log holds the runtime's messages from INFO on, which say which fusions fired.

    Raises:
        CompileError: the runtime refused the model, crashed or took too long (the last two are transient).
    """
    log_path = to / LOG
    settings = candidate.compile
    assert isinstance(settings, OnnxRuntimeCompile)  # Candidate checks it
    disabled = set(settings.disabled_fusions)
    quantized = candidate.quantization.scheme != "none"
    if quantized:
        disabled.update(_ALWAYS_OFF_FOR_INT8)
    raw = to / f"{COMPILED}.optimized"
    try:
        log = _run_optimizer(lowered, raw, settings.graph_optimization, sorted(disabled), log_path)
        log_path.write_text(log, encoding="utf-8")
        model = onnx.load(raw)
    finally:
        raw.unlink(missing_ok=True)
    if quantized:
        model = merge_bias(model)
    try:
        compiled = serialize(model)
    except LoweringError as error:
        raise CompileError(str(error), log_path=log_path) from error
    temporary = to / f"{COMPILED}.tmp"
    temporary.write_bytes(compiled)
    temporary.replace(to / COMPILED)
    return model


def count_kernels(model: ModelProto) -> tuple[int, int, Mapping[str, int]]:
    """(integer products, float products, operator type → count) of a compiled graph."""
    kernels = Counter(node.op_type for node in model.graph.node)
    int8_ops = sum(count for kind, count in kernels.items() if kind in INT8_KERNELS)
    float_matmuls = sum(count for kind, count in kernels.items() if kind in FLOAT_KERNELS)
    return int8_ops, float_matmuls, dict(sorted(kernels.items()))


def merge_bias(model: ModelProto) -> ModelProto:
    """Let MatMulIntegerToFloat add the bias that follows it, as the kernel can; returns a new model.

    The runtime does this for dynamic INT8 and leaves it undone for Q/DQ models (1.31.1), at 2 to 4 % of the latency
    of a small encoder. Sums differ from the separate Add by one rounding at most.
    """
    merged = ModelProto()
    merged.CopyFrom(model)
    graph = merged.graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    outputs = {output.name for output in graph.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    removed: set[str] = set()  # adds, by their output
    for node in graph.node:
        if node.op_type != "MatMulIntegerToFloat" or len(node.input) > _BIAS or node.output[0] in outputs:
            continue
        product = node.output[0]
        if len(readers.get(product, ())) != 1 or readers[product][0].op_type != "Add":
            continue
        add = readers[product][0]
        bias = add.input[1] if add.input[0] == product else add.input[0]
        if shapes.get(bias) != shapes.get(node.input[1], ())[-1:]:
            continue
        node.input.extend([""] * (_BIAS - len(node.input)) + [bias])
        node.output[0] = add.output[0]
        removed.add(add.output[0])
    # an Add and the product that took over its output share that name; only the Add goes
    replace_nodes(graph, [n for n in graph.node if not (n.op_type == "Add" and n.output[0] in removed)])
    return merged


def fusions_that_fire(model_path: Path) -> tuple[str, ...]:
    """Names of `ONNXRUNTIME_FUSIONS` that change this float model or its dynamic INT8 form, sorted.

    Only these are worth a switch in a search space. Both forms are tried, since some fusions match one of them only.

    Raises:
        ConfigError: the model cannot be read.
        CompileError: the runtime refused it.
    """
    proto = load_graph(read_model(model_path))
    with tempfile.TemporaryDirectory(prefix="workbench-fusions-") as folder:
        fired = _fired(model_path, Path(folder))
        try:
            quantized = serialize(lower_dynamic(proto, "tensor"))
        except LoweringError:  # a model without INT8 layers has only its float form
            return fired
        lowered = Path(folder) / "dynamic.onnx"
        lowered.write_bytes(quantized)
        return tuple(sorted({*fired, *_fired(lowered, Path(folder), _ALWAYS_OFF_FOR_INT8)}))


def _fired(model_path: Path, folder: Path, disabled: Sequence[str] = ()) -> tuple[str, ...]:
    log = _run_optimizer(model_path, folder / COMPILED, "all", disabled, folder / LOG)
    return tuple(sorted(set(_MODIFIED.findall(log)) & set(ONNXRUNTIME_FUSIONS)))


def _run_optimizer(
    lowered: Path, optimized: Path, level: GraphOptimization, disabled: Sequence[str], log_path: Path
) -> str:
    """Run the child; returns its log.

    Raises:
        CompileError: with the log written to `log_path`.
    """
    program = Path(__file__).with_name("onnxruntime_optimize.py")
    command = [sys.executable, "-P", str(program), str(lowered), str(optimized), level, str(_INFO), *disabled]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            check=False,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
    except subprocess.TimeoutExpired as error:
        log_path.write_bytes(error.stdout or b"")
        raise CompileError(
            f"ONNX Runtime did not finish optimizing within {_TIMEOUT_S:.0f} s.", log_path=log_path, transient=True
        ) from error
    log = _COLOUR.sub("", done.stdout.decode("utf-8", "replace"))
    if done.returncode != 0:
        log_path.write_text(log, encoding="utf-8")
        if done.returncode < 0:
            raise CompileError(
                f"ONNX Runtime's optimizer was killed by signal {-done.returncode}; the machine may be out of memory.",
                log_path=log_path,
                transient=True,
            )
        reason = log.strip().splitlines()[-1] if log.strip() else f"exit code {done.returncode}"
        raise CompileError(f"ONNX Runtime refused the model: {reason}", log_path=log_path)
    return log
