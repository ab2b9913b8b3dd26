"""Whether OpenVINO is here, and what is known to go wrong with a model or a candidate on its CPU plugin."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping

from workbench.graph.door import call_apart
from workbench.graph.layers import quantizable_layers
from workbench.targets.base import OperatorIssue
from workbench.targets.int8_issues import int8_issues, run_int8_layer, saturates
from workbench.targets.openvino.compiler import capabilities, library, reason
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.candidate import Candidate, Quantization
from workbench.values.errors import CandidateError, ConfigError, ToolchainError
from workbench.values.finding import Finding, module_at
from workbench.values.model import Model
from workbench.values.system.cpu import Cpu
from workbench.values.versions import install_command

_MEASURED = "measured on OpenVINO 2026.4.1"


def setting_issues(candidate: Candidate) -> list[OperatorIssue]:
    """What no model could be run with on this machine."""
    settings = candidate.compile
    bf16 = isinstance(settings, OpenVinoCompile) and settings.inference_precision == "bf16"
    wrong = [
        (
            candidate.precision.mode != "fp32",
            "precision.mode",
            f"{candidate.precision.mode!r} does not exist on this target",
            "Use 'fp32'; INT8 is chosen by quantization.scheme, bf16 by compile.inference_precision.",
            "workbench/targets/openvino/check.py",
        ),
        (
            candidate.quantization.scheme == "dynamic",
            "quantization.scheme",
            "dynamically quantized products run in float on OpenVINO",
            "Use 'static'.",
            f"{_MEASURED}: MatMulInteger becomes a float MatMul",
        ),
        (
            bf16 and "BF16" not in capabilities(),
            "compile.inference_precision",
            "this CPU has no bf16, so that OpenVINO would compute in f32 without a word",
            "Use 'f32'.",
            "OPTIMIZATION_CAPABILITIES of OpenVINO's CPU plugin here",
        ),
    ]
    return [OperatorIssue("error", *said) for applies, *said in wrong if applies]


def model_issues(model: Model, candidate: Candidate, cpu: Cpu) -> list[OperatorIssue]:
    """What the model brings with it."""
    refusal = _refusal(model)
    if refusal is not None:
        remedy = (
            "Export the model without it, in the default domain only; where it is about an If, declare the constant or "
            "the sizes that decide it, inputs: {NAME: {axes: [batch, SIZE]}} in the dataset manifest."
        )
        problem = f"OpenVINO cannot read the model: {refusal}"
        return [OperatorIssue("error", "model", problem, remedy, "OpenVINO's ONNX frontend")]
    if candidate.quantization.scheme == "none":
        return []
    proto, issues = int8_issues(model)
    if proto is None:
        return issues
    products = [layer.name for layer in quantizable_layers(proto) if layer.second is not None]
    quantization = candidate.quantization
    if cpu.saturates and quantization.calibrated:
        instead = "weights have 7 bits and products of activations stay in float; ONNX Runtime keeps 8 bits"
        issues.append(saturates(cpu, instead=instead, source=_MEASURED))
    elif products and quantization.attention_matmul and quantization.activation_symmetric is False:
        problem = (
            f"the factors of products of activations ({len(products)}) get symmetric scales, although "
            "activation_symmetric is false"
        )
        remedy = (
            "Nothing to do: a factor with a zero point would run in float. If accuracy suffers, set "
            "quantization.attention_matmul to false."
        )
        source = f"{_MEASURED}; see workbench/targets/openvino/lowering.py"
        issues.append(OperatorIssue("warning", products[0], problem, remedy, source, "MatMul"))
    return issues


@functools.lru_cache(maxsize=8)
def _refusal(model: Model) -> str | None:
    """Why OpenVINO does not read a model; None when it does. Folding constants, it may take more than there is."""
    try:
        said = call_apart(
            model.path, model.size_bytes, read_here, {"path": str(model.path)}, about="OpenVINO's reading"
        )
    except ConfigError as error:
        return error.rule
    return None if said is None else str(said)


def read_here(path: str) -> str | None:
    """Read a file in this process; what OpenVINO says where it refuses."""
    try:
        library().Core().read_model(path)
    except RuntimeError as error:
        return reason(str(error))
    return None


# --- whether OpenVINO is here and computes in INT8 --------------------------------------------------------------------


PINNED = "2026.4.1"
"""As pyproject.toml pins it: what runs in INT8 changes between releases."""

INT8 = Candidate(
    target="openvino",
    quantization=Quantization(
        scheme="static",
        algorithm="minmax",
        activation_symmetric=False,
        weight_granularity="tensor",
        attention_matmul=False,
        keep_float=0,
    ),
    compile=OpenVinoCompile(),
)

_GROUP = "target openvino"
_INSTALL = install_command("openvino")


def openvino_findings(
    environment: Mapping[str, str], *, place_of: Callable[[str], str | None] = module_at
) -> Iterator[Finding]:
    """One finding when OpenVINO is absent or cannot be loaded; else version, formats, telemetry and a layer in INT8.

    Args:
        place_of: where Python finds a module.
    """
    if place_of("openvino") is None:
        yield _warning("usable", "not installed; it is optional", f"For a second engine on this CPU: {_INSTALL}")
        return
    try:
        library()
        formats = capabilities()
        kernels, seconds = run_int8_layer(INT8)
    except (ToolchainError, CandidateError) as error:
        yield _warning("usable", f"no: {error}", f"Install it again: {_INSTALL}")
        return
    if kernels:
        yield _ok("usable", f"yes: a test layer was quantized, compiled and run in {seconds:.1f} s")
    else:
        yield _warning("usable", "a quantized test layer was left in float", f"Install the pinned version: {_INSTALL}")
    version = importlib.metadata.version("openvino")
    if version == PINNED:
        yield _ok("version", version)
    else:
        remedy = f"Which layers run in INT8 changes between releases. Install the pinned version: {_INSTALL}"
        yield _warning("version", f"{version}; the workbench pins {PINNED}", remedy)
    yield _ok("CPU plugin", f"computes in {', '.join(formats)}")
    yield _ok("telemetry", "blocked: the package that sends OpenVINO's usage events is kept from loading")


def _ok(name: str, value: str) -> Finding:
    return Finding(group=_GROUP, name=name, status="ok", value=value)


def _warning(name: str, value: str, remedy: str) -> Finding:
    return Finding(group=_GROUP, name=name, status="warn", value=value, remedy=remedy)
