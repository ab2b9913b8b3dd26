"""Candidate: one immutable, content-hashed point of the search.

A candidate has four parts. Each part checks itself, and `Candidate.__post_init__` checks the rules across parts,
so that an impossible combination cannot be constructed. Two candidates are equal exactly when their canonical
JSON is equal; fields that do not apply are None, never a default that would make equal things look different.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Literal

from workbench.values.compile_settings import CompileSettings, check_literal
from workbench.values.dimension import FUSION_PREFIX, MOST_BATCH, MOST_LENGTH, MOST_THREADS, Dimension, Scalar
from workbench.values.documents.canonical import added_later, decode, digest, encode
from workbench.values.errors import ConfigError, nearest
from workbench.values.installed_targets import installed_target

Scheme = Literal["none", "dynamic", "static", "cfg", "recipe"]
Algorithm = Literal["minmax", "moving_average", "percentile", "kl", "mse", "ifmr", "hfmg"]
WeightAlgorithm = Literal["minmax", "mse", "arq", "adaround"]
Granularity = Literal["tensor", "channel"]
FloatUnit = Literal["layer", "group"]
Operators = Literal["all", "matmul", "conv"]
Elementwise = Literal["float", "int8"]
SensitivityMetric = Literal["sqnr", "kl", "cosine", "first_order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The number format of everything that is not quantized. Which modes exist belongs to the target."""

    mode: str = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How weights and activations become INT8. Fields that a scheme does not use must be None.

    Attributes:
        scheme: 'cfg' follows a quantizer's configuration (`cfg`) and nothing else; 'recipe' what the target's own
            settings say, of targets for language models.
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
        cfg: the text of a configuration that `quantization.amct` reads; the content, not a path.
        operators: what may become INT8: 'matmul' leaves convolutions in float (MatMul and Gemm alone), 'conv' the
            products of matrices.
        elementwise: 'int8' keeps tensors in 8 bits between layers, through additions, pooling and activations; None for
            float, and where a target has no such choice.
        calibrator: who derives the scales, where a target has a choice of its own: its vendor's quantizer, or this
            workbench; None for what the target takes by itself. The record says who it was.
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
    calibrator: str | None = None
    operators: Operators = added_later("all")  # noqa: RUF009  # it gives a dataclass field
    elementwise: Elementwise | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field

    def __post_init__(self) -> None:
        check_literal(Scheme, "quantization.scheme", self.scheme)
        if self.elementwise == "float":
            object.__setattr__(self, "elementwise", None)
        if self.scheme == "static":
            self._complete()
        required, optional = map(set, _QUANTIZATION_FIELDS[self.scheme])
        if self.scheme == "static" and self.algorithm == "percentile":
            required.add("percentile")
        if self.keep_float:
            required |= {"keep_float_unit", "sensitivity"}
        for name in (f.name for f in fields(self) if f.name != "scheme"):
            value = getattr(self, name)
            if name == "operators" and value == "all":
                continue
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
                check_literal(kind, f"quantization.{name}", getattr(self, name))
        if self.percentile is not None and not 50.0 < self.percentile <= 100.0:
            raise ConfigError(f"{self.percentile} is outside (50, 100].", key="quantization.percentile")
        if self.balance not in (None, "auto") and not (isinstance(self.balance, float) and 0 <= self.balance <= 1):
            raise ConfigError(f"{self.balance!r} is neither 'auto' nor in [0, 1].", key="quantization.balance")
        if self.keep_float is not None and self.keep_float < 0:
            raise ConfigError(f"{self.keep_float} is negative.", key="quantization.keep_float")

    def _complete(self) -> None:
        """Fill in defaults, and drop a ranking that ranks nothing: equal settings are equal values."""
        ranking: dict[str, Any] = {"keep_float_unit": "layer", "sensitivity": "sqnr"}
        for name, usual in {"weight_algorithm": "minmax", "bias_correction": False, **ranking}.items():
            if name in ranking and not self.keep_float:
                object.__setattr__(self, name, None)
            elif getattr(self, name) is None:
                object.__setattr__(self, name, usual)

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


_QUANTIZATION_FIELDS: Mapping[Scheme, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "none": ((), ()),
    "dynamic": (("weight_granularity",), ()),
    "cfg": (("cfg",), ("calibrator",)),
    "recipe": ((), ()),
    "static": (
        (
            *("algorithm", "activation_symmetric", "weight_granularity", "weight_algorithm"),
            *("attention_matmul", "bias_correction", "keep_float"),
        ),
        ("balance", "calibrator", "operators", "elementwise"),
    ),
}
"""Scheme → the fields it needs, and those it may have."""

_QUANTIZATION_LITERALS: Mapping[str, Any] = {
    "algorithm": Algorithm,
    "weight_algorithm": WeightAlgorithm,
    "weight_granularity": Granularity,
    "keep_float_unit": FloatUnit,
    "operators": Operators,
    "elementwise": Elementwise,
    "sensitivity": SensitivityMetric,
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
class Serving:
    """How the compiled model is called.

    Attributes:
        streams: calls that run side by side and share the threads; None where the target has none.
        sequence_bins: padded lengths that texts are grouped by and padded to, ascending, where one compiled file takes
            any length; None for the bins of the dataset's manifest.
    """

    batch: int = 1
    intra_op_threads: int = 1
    streams: int | None = None
    sequence_bins: tuple[int, ...] | None = added_later(None)

    def __post_init__(self) -> None:
        for name, most in (("batch", MOST_BATCH), ("intra_op_threads", MOST_THREADS), ("streams", MOST_THREADS)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ConfigError(f"{value} is not from 1 to {most}.", key=f"serving.{name}")
        bins = self.sequence_bins
        if bins is not None and (
            not bins or list(bins) != sorted(set(bins)) or not 1 <= bins[0] <= bins[-1] <= MOST_LENGTH
        ):
            raise ConfigError(
                f"{list(bins)} are not ascending lengths from 1 to {MOST_LENGTH}.", key="serving.sequence_bins"
            )


_TARGETS_OWN = CompileSettings()
_FOR_ALL = {"precision.mode": Dimension(about="number format of what is not quantized", values=(Precision().mode,))}
"""What a target has that says nothing of it."""
_OF_SOME_TARGETS = (
    *("precision.mode", "quantization.calibrator", "quantization.elementwise"),
    *("serving.streams", "serving.sequence_bins"),
)
"""Refused where the target has no such setting, or where the value is none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration: what `evaluate` turns into an `Evaluation`.

    Attributes:
        target: the name of one that is installed.
        compile: of the target's own type; `CompileSettings()` stands for its defaults.
    """

    EARLIER: ClassVar = {"version": None}  # of `to_json`, where it stands inside of something else
    target: str
    precision: Precision = Precision()
    quantization: Quantization = Quantization()
    compile: CompileSettings = _TARGETS_OWN
    serving: Serving = Serving()

    def __post_init__(self) -> None:
        expected = installed_target(self.target).settings
        if type(self.compile) is CompileSettings:
            object.__setattr__(self, "compile", expected())
        if not isinstance(self.compile, expected):
            raise ConfigError(
                f"{type(self.compile).__name__} does not belong to target {self.target!r}.",
                key="compile",
                hint=f"It takes {expected.__name__}.",
            )
        self.compile.check(self)
        known = {**_FOR_ALL, **installed_target(self.target).dimensions}
        for name in _OF_SOME_TARGETS:
            value, dimension = attrgetter(name)(self), known.get(name)
            if value is None or (dimension is not None and (not dimension.values or value in dimension.values)):
                continue
            rule, hint = f"{value!r}: target {self.target!r} has no such setting.", "Leave it out."
            if dimension is not None:
                rule = f"{value!r} is no value of it on target {self.target!r}."
                hint = nearest(str(value), map(str, dimension.values))
            raise ConfigError(rule, key=name, hint=hint)

    def has(self, setting: str) -> bool:
        """Whether a setting that not all targets have, such as 'serving.intra_op_threads', means something here."""
        return setting in installed_target(self.target).dimensions

    @property
    def sequence_bins(self) -> tuple[int, ...] | None:
        """Padded lengths of the texts this candidate is fed, compiled or not; None for those of the dataset."""
        return self.compile.compiled_lengths() or self.serving.sequence_bins

    @property
    def id(self) -> str:
        """sha256 of the canonical JSON, 64 hex digits; shown as its first 12."""
        return digest(self.to_json())

    @property
    def short_id(self) -> str:
        return self.id[:12]

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, **encode(self)}

    @staticmethod
    def types_within(data: Mapping[str, Any]) -> dict[str, type]:
        """The type of a stored candidate's `compile` part, which is its target's own (see `canonical.decode`)."""
        target = data.get("target")
        return {"compile": installed_target(target).settings} if isinstance(target, str) else {}

    def parameters(self) -> dict[str, Scalar]:
        """Flat view for tables and trackers: dotted name → scalar; fields that do not apply are left out."""
        flat: dict[str, Scalar] = {"target": self.target}
        parts = {
            "precision": self.precision,
            "quantization": self.quantization.settings(),
            self.compile.part: self.compile.shown(),
            "serving": self.serving,
        }
        if self.compile.numbers(self):
            parts.pop("precision")
        for part, values in parts.items():
            for name, value in encode(values).items():
                if value is not None and (name != "intra_op_threads" or self.has(f"{part}.{name}")):
                    flat[f"{part}.{name}"] = " ".join(map(str, value)) if isinstance(value, list) else value
        return flat

    def switches(self) -> dict[str, Scalar]:
        """`parameters`, with each fusion that may be switched on or off as a setting of its own."""
        found = self.parameters()
        changed = {
            name: state
            for state, names in (("off", "compile.disabled_fusions"), ("on", "compile.enabled_fusions"))
            for name in str(found.pop(names, "")).split()
        }
        for name, dimension in installed_target(self.target).dimensions.items():
            if name.startswith(FUSION_PREFIX):
                found[name] = changed.get(name.removeprefix(FUSION_PREFIX), dimension.values[0])
        return found


def candidate_from_json(data: dict[str, Any]) -> Candidate:
    """Rebuild a candidate from `Candidate.to_json`.

    Raises:
        DecodeError: the version or a field is unknown, or a value has another type.
        ConfigError: its target is not installed, or the combination is impossible.
    """
    return decode(Candidate, data, "candidate", version=1)
