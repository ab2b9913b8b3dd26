"""Candidate: one immutable, content-hashed point of the search.

A candidate has four parts. Each part checks itself, and `Candidate.__post_init__` checks the rules across parts,
so that an impossible combination cannot be constructed. Two candidates are equal exactly when their canonical
JSON is equal; fields that do not apply are None, never a default that would make equal things look different.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from workbench.canonical import decode, digest, encode
from workbench.errors import ConfigError, nearest

Scheme = Literal["none", "dynamic", "static"]
Algorithm = Literal["minmax", "percentile", "kl", "mse"]
Granularity = Literal["tensor", "channel"]
GraphOptimization = Literal["disabled", "basic", "extended", "all"]
Scalar = str | int | float | bool | None

ONNXRUNTIME_FUSIONS = (
    "AttentionFusion",
    "BiasGeluFusion",
    "BiasSkipLayerNormFusion",
    "BiasSoftmaxFusion",
    "CommonSubexpressionElimination",
    "ConstantFolding",
    "EmbedLayerNormFusion",
    "FastGeluFusion",
    "GeluFusionL1",
    "GeluFusionL2",
    "GemmActivationFusion",
    "LayerNormFusionL1",
    "LayerNormFusionL2",
    "MatMulActivationFusion",
    "MatMulAddFusion",
    "MatMulScaleFusion",
    "MatmulTransposeFusion",
    "QuickGeluFusion",
    "ReshapeFusion",
    "SimplifiedLayerNormFusion",
    "SkipLayerNormFusion",
    "TransposeOptimizer",
)
"""ONNX Runtime 1.31 graph transformers that matter for encoders. The runtime ignores an unknown name in silence,
so names outside this list are refused. Source: names logged at severity 0 by ENABLE_ALL in onnxruntime 1.31.1."""


def _check_literal(kind: Any, key: str, value: object) -> None:
    if value not in get_args(kind):
        raise ConfigError(f"{value!r} is none of {', '.join(map(repr, get_args(kind)))}.", key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The number format of everything that is not quantized. Which modes exist belongs to the target."""

    mode: str = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How weights and activations become INT8. Fields that a scheme does not use must be None.

    Attributes:
        percentile: share of the non-zero absolute activation values kept, in percent (99.99); only with the algorithm
            `percentile`.
        attention_matmul: quantize MatMuls whose two inputs are both activations.
        keep_float: how many of the most sensitive layers stay in float.
    """

    scheme: Scheme = "none"
    algorithm: Algorithm | None = None
    percentile: float | None = None
    activation_symmetric: bool | None = None
    weight_granularity: Granularity | None = None
    attention_matmul: bool | None = None
    keep_float: int | None = None

    def __post_init__(self) -> None:
        _check_literal(Scheme, "quantization.scheme", self.scheme)
        used = {
            "none": set(),
            "dynamic": {"weight_granularity"},
            "static": {
                "algorithm",
                "activation_symmetric",
                "weight_granularity",
                "attention_matmul",
                "keep_float",
                *(("percentile",) if self.algorithm == "percentile" else ()),
            },
        }[self.scheme]
        for name in (f.name for f in fields(self) if f.name != "scheme"):
            value = getattr(self, name)
            if name in used and value is None:
                raise ConfigError(f"must be set when the scheme is {self.scheme!r}.", key=f"quantization.{name}")
            if name not in used and value is not None:
                raise ConfigError(
                    f"{value!r} means nothing with scheme {self.scheme!r}, algorithm {self.algorithm!r}.",
                    key=f"quantization.{name}",
                    hint="Leave it out.",
                )
        if self.algorithm is not None:
            _check_literal(Algorithm, "quantization.algorithm", self.algorithm)
        if self.weight_granularity is not None:
            _check_literal(Granularity, "quantization.weight_granularity", self.weight_granularity)
        if self.percentile is not None and not 50.0 < self.percentile <= 100.0:
            raise ConfigError(f"{self.percentile} is outside (50, 100].", key="quantization.percentile")
        if self.keep_float is not None and self.keep_float < 0:
            raise ConfigError(f"{self.keep_float} is negative.", key="quantization.keep_float")


EVERYTHING_INT8 = Quantization(
    scheme="static",
    algorithm="minmax",
    activation_symmetric=False,
    weight_granularity="channel",
    attention_matmul=True,
    keep_float=0,
)
"""Static INT8 of every layer that can be quantized, by the plainest rule: what layers are ranked with, and what a
target is asked about when a model is inspected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxRuntimeCompile:
    """What ONNX Runtime's graph optimizer may do.

    Attributes:
        disabled_fusions: names of `ONNXRUNTIME_FUSIONS`, sorted and unique.
    """

    graph_optimization: GraphOptimization = "all"
    disabled_fusions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_literal(GraphOptimization, "compile.graph_optimization", self.graph_optimization)
        for name in self.disabled_fusions:
            if name not in ONNXRUNTIME_FUSIONS:
                raise ConfigError(
                    f"{name!r} is not a fusion that can be switched.",
                    key="compile.disabled_fusions",
                    hint=nearest(name, ONNXRUNTIME_FUSIONS),
                )
        if list(self.disabled_fusions) != sorted(set(self.disabled_fusions)):
            raise ConfigError("names must be sorted and unique.", key="compile.disabled_fusions")
        if self.disabled_fusions and self.graph_optimization == "disabled":
            raise ConfigError("nothing fuses when graph_optimization is 'disabled'.", key="compile.disabled_fusions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How the compiled model is called."""

    batch: int = 1
    intra_op_threads: int = 1

    def __post_init__(self) -> None:
        for name in ("batch", "intra_op_threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{getattr(self, name)} is less than 1.", key=f"serving.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration: what `evaluate` turns into an `Evaluation`."""

    target: str = "onnxruntime"
    precision: Precision = Precision()
    quantization: Quantization = Quantization()
    compile: OnnxRuntimeCompile = OnnxRuntimeCompile()
    serving: Serving = Serving()

    def __post_init__(self) -> None:
        # ONNX Runtime turns Q/DQ pairs into integer kernels from EXTENDED on; below it the same file runs in
        # float with extra work (measured on 1.31.1, and repeated by tests/targets/test_onnxruntime.py).
        if self.quantization.scheme != "none" and self.compile.graph_optimization in ("disabled", "basic"):
            raise ConfigError(
                f"{self.compile.graph_optimization!r} leaves INT8 layers in float.",
                key="compile.graph_optimization",
                hint="Use 'extended' or 'all' with a quantized model.",
            )

    @property
    def id(self) -> str:
        """sha256 of the canonical JSON, 64 hex digits; shown as its first 12."""
        return digest(self.to_json())

    @property
    def short_id(self) -> str:
        return self.id[:12]

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, **encode(self)}

    def parameters(self) -> dict[str, Scalar]:
        """Flat view for tables and trackers: dotted name → scalar; fields that do not apply are left out."""
        flat: dict[str, Scalar] = {"target": self.target}
        for part in ("precision", "quantization", "compile", "serving"):
            for name, value in encode(getattr(self, part)).items():
                if value is not None:
                    flat[f"{part}.{name}"] = " ".join(value) if isinstance(value, list) else value
        return flat


def candidate_from_json(data: dict[str, Any]) -> Candidate:
    """Rebuild a candidate from `Candidate.to_json`.

    Raises:
        DecodeError: the version or a field is unknown, or a value has another type.
        ConfigError: the combination is impossible.
    """
    body = dict(data)
    version = body.pop("version", None)
    if version != 1:
        raise ConfigError(f"candidate version {version!r} is unknown.", hint="This workbench reads version 1.")
    return decode(Candidate, body, "candidate")


def describe(candidate: Candidate) -> str:
    """One short phrase for a table row: 'INT8 static kl, per channel, 2 in float' or 'fp32'."""
    q = candidate.quantization
    words = [candidate.precision.mode if q.scheme == "none" else f"INT8 {q.scheme}"]
    if q.algorithm is not None:
        words.append(q.algorithm if q.percentile is None else f"{q.algorithm} {q.percentile:g}")
    if q.activation_symmetric is not None:
        words.append("symmetric" if q.activation_symmetric else "asymmetric")
    if q.weight_granularity is not None:
        words.append(f"weights per {q.weight_granularity}")
    if q.attention_matmul:
        words.append("attention too")
    if q.keep_float:
        words.append(f"{q.keep_float} layers in float")
    c = candidate.compile
    if c.graph_optimization != "all":
        words.append(f"graph {c.graph_optimization}")
    if c.disabled_fusions:
        words.append("no " + ", ".join(c.disabled_fusions))
    return ", ".join(words)
