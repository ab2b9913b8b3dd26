"""Candidate: one immutable, content-hashed point of the search.

A candidate has four parts. Each part checks itself, and `Candidate.__post_init__` checks the rules across parts,
so that an impossible combination cannot be constructed. Two candidates are equal exactly when their canonical
JSON is equal; fields that do not apply are None, never a default that would make equal things look different.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from workbench.values.ascend_settings import ALL_PRECISION_MODES, ASCEND, PRECISION_MODES, AscendCompile, check_ascend
from workbench.values.compile_settings import CompileSettings
from workbench.values.dimension import Scalar
from workbench.values.documents.canonical import decode, digest, encode
from workbench.values.errors import ConfigError, nearest

Scheme = Literal["none", "dynamic", "static", "cfg"]
Algorithm = Literal["minmax", "moving_average", "percentile", "kl", "mse", "ifmr", "hfmg"]
WeightAlgorithm = Literal["minmax", "mse", "arq", "adaround"]
Granularity = Literal["tensor", "channel"]
FloatUnit = Literal["layer", "group"]
Calibrator = Literal["amct", "workbench"]
SensitivityMetric = Literal["sqnr", "kl", "cosine", "first_order"]
PerformanceHint = Literal["latency", "throughput"]
GraphOptimization = Literal["disabled", "basic", "extended", "all"]

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
        scheme: 'cfg' follows an AMCT configuration (`cfg`) and nothing else.
        percentile: share of the non-zero absolute activation values kept, in percent (99.99); only with the algorithm
            `percentile`.
        weight_algorithm: 'minmax' where it is not given.
        attention_matmul: quantize MatMuls whose two inputs are both activations.
        balance: migration strength of activation balancing in [0, 1] (SmoothQuant, DMQ); 'auto' takes for every
            layer the strength with the smallest estimated error; None for no balancing.
        bias_correction: take the mean error of rounding back out of the biases; False where it is not given.
        keep_float: how many of the most sensitive units stay in float.
        keep_float_unit, sensitivity: what is counted and by which ranking, 'layer' and 'sqnr' where they are not
            given; None when nothing is kept in float.
        cfg: the text of an AMCT simplified configuration or of its JSON form; the content, not a path.
        calibrator: who derives the scales for Ascend: the vendor's AMCT, or this workbench; None for AMCT where it
            is installed and knows the recipe, the workbench otherwise. The record says who it was.
    """

    scheme: Scheme = "none"
    algorithm: Algorithm | None = None
    percentile: float | None = None
    activation_symmetric: bool | None = None
    weight_granularity: Granularity | None = None
    weight_algorithm: WeightAlgorithm | None = None
    attention_matmul: bool | None = None
    balance: float | Literal["auto"] | None = None
    bias_correction: bool | None = None
    keep_float: int | None = None
    keep_float_unit: FloatUnit | None = None
    sensitivity: SensitivityMetric | None = None
    cfg: str | None = None
    calibrator: Calibrator | None = None

    def __post_init__(self) -> None:
        _check_literal(Scheme, "quantization.scheme", self.scheme)
        if self.scheme == "static":
            self._complete()
        required, optional = _QUANTIZATION_FIELDS[self.scheme]
        if self.scheme == "static" and self.algorithm == "percentile":
            required |= {"percentile"}
        if self.keep_float:
            required |= {"keep_float_unit", "sensitivity"}
        for name in (f.name for f in fields(self) if f.name != "scheme"):
            value = getattr(self, name)
            if name in required and value is None:
                raise ConfigError(f"must be set when the scheme is {self.scheme!r}.", key=f"quantization.{name}")
            if name not in required | optional and value is not None:
                raise ConfigError(
                    f"{value!r} means nothing with scheme {self.scheme!r}, algorithm {self.algorithm!r}, "
                    f"keep_float {self.keep_float!r}.",
                    key=f"quantization.{name}",
                    hint="Leave it out.",
                )
        for name, kind in _QUANTIZATION_LITERALS.items():
            if getattr(self, name) is not None:
                _check_literal(kind, f"quantization.{name}", getattr(self, name))
        if self.percentile is not None and not 50.0 < self.percentile <= 100.0:
            raise ConfigError(f"{self.percentile} is outside (50, 100].", key="quantization.percentile")
        if self.balance not in (None, "auto") and not (isinstance(self.balance, float) and 0 <= self.balance <= 1):
            raise ConfigError(f"{self.balance!r} is neither 'auto' nor in [0, 1].", key="quantization.balance")
        if self.keep_float is not None and self.keep_float < 0:
            raise ConfigError(f"{self.keep_float} is negative.", key="quantization.keep_float")

    def _complete(self) -> None:
        """Fill in defaults, and drop a ranking that ranks nothing: equal settings are equal values."""
        defaults: dict[str, Any] = {"weight_algorithm": "minmax", "bias_correction": False}
        if self.keep_float:
            defaults |= {"keep_float_unit": "layer", "sensitivity": "sqnr"}
        else:
            object.__setattr__(self, "keep_float_unit", None)
            object.__setattr__(self, "sensitivity", None)
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def calibrated(self) -> bool:
        """Whether scales come from calibration data, so that a record is made before lowering."""
        return self.scheme in ("static", "cfg")

    def settings(self) -> dict[str, Scalar]:
        """Field → value for tables: what does not apply is left out, and so is the usual ranking, which would be two
        more differences wherever `keep_float` differs; a configuration's text is its digest's first 12 digits."""
        usual = {"keep_float_unit": "layer", "sensitivity": "sqnr"}
        found = {n: value for n, value in encode(self).items() if value is not None and usual.get(n) != value}
        if self.cfg is not None:
            found["cfg"] = digest(self.cfg)[:12]
        return found


_QUANTIZATION_FIELDS: Mapping[Scheme, tuple[frozenset[str], frozenset[str]]] = {
    "none": (frozenset(), frozenset()),
    "dynamic": (frozenset({"weight_granularity"}), frozenset()),
    "cfg": (frozenset({"cfg"}), frozenset({"calibrator"})),
    "static": (
        frozenset(
            {
                "algorithm",
                "activation_symmetric",
                "weight_granularity",
                "weight_algorithm",
                "attention_matmul",
                "bias_correction",
                "keep_float",
            }
        ),
        frozenset({"balance", "calibrator"}),
    ),
}
"""Scheme → the fields it needs, and those it may have."""

_QUANTIZATION_LITERALS: Mapping[str, Any] = {
    "algorithm": Algorithm,
    "weight_algorithm": WeightAlgorithm,
    "weight_granularity": Granularity,
    "keep_float_unit": FloatUnit,
    "sensitivity": SensitivityMetric,
    "calibrator": Calibrator,
}


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
class OnnxRuntimeCompile(CompileSettings):
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
class OpenVinoCompile(CompileSettings):
    """What OpenVINO's CPU plugin is told when it compiles.

    Attributes:
        performance_hint: its preset for what is not set explicitly.
        inference_precision: 'f32', or 'bf16' on a CPU that has it; of what is not INT8.
    """

    performance_hint: PerformanceHint = "latency"
    inference_precision: Literal["f32", "bf16"] = "f32"

    def __post_init__(self) -> None:
        _check_literal(PerformanceHint, "compile.performance_hint", self.performance_hint)
        _check_literal(Literal["f32", "bf16"], "compile.inference_precision", self.inference_precision)


Compile = OnnxRuntimeCompile | OpenVinoCompile | AscendCompile
COMPILE_OF: Mapping[str, type[Compile]] = {
    "onnxruntime": OnnxRuntimeCompile,
    "openvino": OpenVinoCompile,
    ASCEND: AscendCompile,
}
"""Target → the type of its candidates' `compile` part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How the compiled model is called.

    Attributes:
        streams: OpenVINO's parallel infer requests that share the threads; None where the target has none.
        sequence_bins: padded lengths that texts are grouped by and padded to, ascending, where one compiled file takes
            any length; None for the bins of the dataset's manifest.
    """

    batch: int = 1
    intra_op_threads: int = 1
    streams: int | None = None
    sequence_bins: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "intra_op_threads", "streams"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{getattr(self, name)} is less than 1.", key=f"serving.{name}")
        bins = self.sequence_bins
        if bins is not None and (not bins or list(bins) != sorted(set(bins)) or bins[0] < 1):
            raise ConfigError(f"{list(bins)} are not ascending positive lengths.", key="serving.sequence_bins")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration: what `evaluate` turns into an `Evaluation`."""

    target: str = "onnxruntime"
    precision: Precision = Precision()
    quantization: Quantization = Quantization()
    compile: Compile = OnnxRuntimeCompile()
    serving: Serving = Serving()

    def __post_init__(self) -> None:
        expected = COMPILE_OF.get(self.target)
        if expected is not None and not isinstance(self.compile, expected):
            raise ConfigError(
                f"{type(self.compile).__name__} does not belong to target {self.target!r}.",
                key="compile",
                hint=f"It takes {expected.__name__}.",
            )
        if self.target == "onnxruntime" and self.serving.streams is not None:
            raise ConfigError("ONNX Runtime has no streams.", key="serving.streams", hint="Leave it out.")
        if expected is not None and self.target != ASCEND and self.precision.mode in ALL_PRECISION_MODES:
            raise ConfigError(
                f"{self.precision.mode!r} is ATC's; target {self.target!r} has none of its modes.",
                key="precision.mode",
                hint="Use fp32.",
            )
        if self.target != ASCEND and self.quantization.calibrator is not None:
            raise ConfigError("is for Ascend only.", key="quantization.calibrator", hint="Leave it out.")
        if isinstance(self.compile, AscendCompile):
            self._check_ascend(self.compile)
        if isinstance(self.compile, OnnxRuntimeCompile):
            self._check_onnxruntime(self.compile)

    def _check_onnxruntime(self, settings: OnnxRuntimeCompile) -> None:
        # ONNX Runtime turns Q/DQ pairs into integer kernels from EXTENDED on; below it the same file runs in
        # float with extra work (measured on 1.31.1, and repeated by tests/targets/onnxruntime/test_target.py).
        if self.quantization.scheme != "none" and settings.graph_optimization in ("disabled", "basic"):
            raise ConfigError(
                f"{settings.graph_optimization!r} leaves INT8 layers in float.",
                key="compile.graph_optimization",
                hint="Use 'extended' or 'all' with a quantized model.",
            )

    def _check_ascend(self, settings: AscendCompile) -> None:
        if self.serving.streams is not None:
            raise ConfigError("an Ascend session has one stream.", key="serving.streams", hint="Leave it out.")
        if self.serving.sequence_bins is not None:
            raise ConfigError(
                "on Ascend every length is compiled.",
                key="serving.sequence_bins",
                hint="Name the bins in compile.sequence_bins.",
            )
        if self.serving.batch > settings.batches[-1]:
            raise ConfigError(
                f"{self.serving.batch} is larger than every compiled batch, {list(settings.batches)}.",
                key="serving.batch",
                hint="Name it in compile.batches too.",
            )
        check_ascend(
            mode=self.precision.mode,
            scheme=self.quantization.scheme,
            settings=settings,
            attention=bool(self.quantization.attention_matmul),
            symmetric=bool(self.quantization.activation_symmetric),
        )

    @property
    def sequence_bins(self) -> tuple[int, ...] | None:
        """Padded lengths of the texts this candidate is fed, compiled or not; None for those of the dataset."""
        if isinstance(self.compile, AscendCompile):
            return self.compile.sequence_bins or None
        return self.serving.sequence_bins

    @property
    def id(self) -> str:
        """sha256 of the canonical JSON, 64 hex digits; shown as its first 12."""
        return digest(self.to_json())

    @property
    def short_id(self) -> str:
        return self.id[:12]

    def to_json(self) -> dict[str, Any]:
        body = {"version": 1, **encode(self)}
        if self.serving.sequence_bins is None:  # candidates kept their ids when this field came
            del body["serving"]["sequence_bins"]
        return body

    def parameters(self) -> dict[str, Scalar]:
        """Flat view for tables and trackers: dotted name → scalar; fields that do not apply are left out."""
        flat: dict[str, Scalar] = {"target": self.target}
        for part in ("precision", "quantization", "compile", "serving"):
            values = getattr(self, part)
            shown = encode(values.settings() if isinstance(values, Quantization | AscendCompile) else values)
            if self.target == ASCEND and part == "serving":
                del shown["intra_op_threads"]  # the host's threads compute nothing there
            for name, value in shown.items():
                if value is not None:
                    flat[f"{part}.{name}"] = " ".join(map(str, value)) if isinstance(value, list) else value
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
    # the compile part is decoded by the target's own type, so that an error names one type and not all of them
    kind = COMPILE_OF.get(str(body.get("target", "onnxruntime")), OnnxRuntimeCompile)
    if "compile" in body:
        body["compile"] = encode(decode(kind, body["compile"], "candidate.compile"))
    return decode(Candidate, body, "candidate")


def describe(candidate: Candidate) -> str:
    """One short phrase for a table row: 'INT8 static kl, per channel, 2 in float' or 'fp32, bins 32 64 256'."""
    q = candidate.quantization
    words = [candidate.precision.mode if q.scheme == "none" else f"INT8 {q.scheme}"]
    if q.cfg is not None:
        words[0] = f"INT8 by AMCT cfg {digest(q.cfg)[:6]}"
    if q.algorithm is not None:
        words.append(q.algorithm if q.percentile is None else f"{q.algorithm} {q.percentile:g}")
    if q.activation_symmetric is not None:
        words.append("symmetric" if q.activation_symmetric else "asymmetric")
    if q.weight_granularity is not None:
        words.append(f"weights per {q.weight_granularity}")
    if q.weight_algorithm not in (None, "minmax"):
        words.append(f"weights {q.weight_algorithm}")
    if q.attention_matmul:
        words.append("attention too")
    if q.balance is not None:
        words.append(f"balanced {q.balance}")
    if q.bias_correction:
        words.append("bias corrected")
    if q.calibrator is not None:
        words.append(f"by {'AMCT' if q.calibrator == 'amct' else 'the workbench'}")
    if q.keep_float:
        by = "" if q.sensitivity == "sqnr" else f" by {q.sensitivity}"
        unit = f"{q.keep_float_unit}" if q.keep_float == 1 else f"{q.keep_float_unit}s"
        words.append(f"{q.keep_float} {unit} in float{by}")
    c = candidate.compile
    if isinstance(c, AscendCompile):
        if q.scheme != "none" and candidate.precision.mode != PRECISION_MODES[0]:
            words.append(f"the rest {candidate.precision.mode}")
        return ", ".join([*words, *_ascend_words(c)])
    if isinstance(c, OpenVinoCompile):
        words.insert(0, "OpenVINO")
        if c.performance_hint != "latency":
            words.append(f"hint {c.performance_hint}")
        if c.inference_precision != "f32":
            words.append(f"the rest in {c.inference_precision}")
    else:
        if c.graph_optimization != "all":
            words.append(f"graph {c.graph_optimization}")
        if c.disabled_fusions:
            words.append("no " + ", ".join(c.disabled_fusions))
    return ", ".join([*words, *_lengths(candidate.sequence_bins)])


def _lengths(bins: tuple[int, ...] | None) -> list[str]:
    return [f"{'bins' if len(bins) > 1 else 'length'} {' '.join(map(str, bins))}"] if bins else []


def _ascend_words(c: AscendCompile) -> list[str]:
    """What of the compile part differs from ATC's defaults, and the shapes."""
    words = _lengths(c.sequence_bins)
    if len(c.batches) > 1:
        words.append(f"batches {' '.join(map(str, c.batches))}")
    if c.shapes == "gears":
        words.append("gears")
    if c.disabled_fusions:
        words.append("no " + ", ".join(c.disabled_fusions))
    if c.enabled_fusions:
        words.append("with " + ", ".join(c.enabled_fusions))
    shown = ("batches", "sequence_bins", "shapes", "disabled_fusions", "enabled_fusions")
    for name, value in c.settings().items():
        if name not in shown:
            text = " ".join(value) if isinstance(value, tuple) else str(value).lower()
            words.append(f"{name} {text}")
    return words
