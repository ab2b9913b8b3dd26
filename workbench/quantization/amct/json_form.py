"""AMCT's quantization configuration in JSON: the settings of every layer written out (amct.md §2.1).

AmctConfig (.cfg) + layers ── config.expand ──► ExpandedConfig ── config_json ──► text, as AMCT writes it
                                                          ▲── parse_config_json ◄── text
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from workbench.quantization.amct.cfg import broken_rule, broken_search
from workbench.quantization.amct.protobuf_text import Place
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, nearest

ActAlgo = Literal["ifmr", "hfmg"]
WtsAlgo = Literal["arq_quantize", "ada_quantize", "nuq_quantize"]

GLOBAL_KEYS = (
    "version",
    "batch_num",
    "activation_offset",
    "joint_quant",
    "do_fusion",
    "fakequant_precision_mode",
    "skip_fusion_layers",
    "tensor_quantize",
)
"""Keys that are no layer's name, in the order AMCT writes them."""


_KEYS = {"activation": "activation_quant_params", "weight": "weight_quant_params"}
"""Of fields below that have other names in the text; all fields stand in AMCT's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationQuantParams:
    """Attributes: num_of_bins: with hfmg only; the percentiles and the search with ifmr only; None otherwise.

    asymmetric: None in a JSON text that leaves it out, which means activation_offset.
    """

    num_bits: int = 8
    max_percentile: float | None = None
    min_percentile: float | None = None
    search_range: tuple[float, float] | None = None
    search_step: float | None = None
    act_algo: ActAlgo = "ifmr"
    asymmetric: bool | None = None
    num_of_bins: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuantParams:
    """Attributes: channel_wise: None in a JSON text that leaves it out, which means the layer type's default.

    num_iteration, reg_param, beta_range, warm_start: with ada_quantize; num_steps, num_of_iteration: nuq_quantize.
    """

    num_bits: int = 8
    reg_param: float | None = None
    warm_start: float | None = None
    num_iteration: int | None = None
    beta_range: tuple[float, float] | None = None
    num_steps: int | None = None
    num_of_iteration: int | None = None
    channel_wise: bool | None = None
    wts_algo: WtsAlgo = "arq_quantize"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """Attributes: weight: None where AMCT leaves the block out, which means ARQ with the layer type's default."""

    quant_enable: bool
    dmq_balancer_param: float | None = None
    activation: ActivationQuantParams
    weight: WeightQuantParams | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorConfig:
    layer_name: str
    input_index: int
    activation: ActivationQuantParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedConfig:
    """The JSON form.

    Attributes:
        layers: layer name → settings, in any order; the JSON has them sorted by name.
        joint_quant: None where it is absent.
        file: where it was read, for messages; no part of the comparison.
    """

    batch_num: int = 1
    activation_offset: bool = True
    joint_quant: bool | None = None
    do_fusion: bool = True
    force_fp16: bool = False
    skip_fusion_layers: tuple[str, ...] = ()
    tensor_quantize: tuple[TensorConfig, ...] = ()
    layers: Mapping[str, LayerConfig] = field(default_factory=dict)
    file: str | None = field(default=None, compare=False)


def config_json(config: ExpandedConfig) -> str:
    """The text AMCT's create_quant_config writes: its key order, 4 spaces, layers by name, no last line break."""
    data = {
        "version": 1,
        "batch_num": config.batch_num,
        "activation_offset": config.activation_offset,
        "joint_quant": config.joint_quant,
        "do_fusion": config.do_fusion,
        "fakequant_precision_mode": "FORCE_FP16_QUANT" if config.force_fp16 else None,
        "skip_fusion_layers": config.skip_fusion_layers,
        "tensor_quantize": config.tensor_quantize or None,
        **{name: config.layers[name] for name in sorted(config.layers)},
    }
    return json.dumps(_plain(data), indent=4, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """As JSON has it; what is None is left out."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        value = {_KEYS.get(each.name, each.name): getattr(value, each.name) for each in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value


# --- reading, as strictly as AMCT does -------------------------------------------------------------------------------

_ACTIVATIONS: Mapping[str, Mapping[str, Any]] = {
    "ifmr": {
        "max_percentile": 0.999999,
        "min_percentile": 0.999999,
        "search_range": (0.7, 1.3),
        "search_step": 0.01,
    },
    "hfmg": {"num_of_bins": 4096},
}
_WEIGHTS: Mapping[str, Mapping[str, Any]] = {
    "arq_quantize": {},
    "ada_quantize": {"num_iteration": 10000, "reg_param": 0.01, "beta_range": (20.0, 2.0), "warm_start": 0.2},
    "nuq_quantize": {"num_steps": 32, "num_of_iteration": 0},
}
"""Algorithm → its own parameters and their defaults, whose types they have."""


def parse_config_json(text: str, *, file: Place = None) -> ExpandedConfig:
    """The configuration a JSON text holds, AMCT's defaults filled in for what it leaves out.

    Raises:
        ConfigError: with file and key path: no JSON, a key given twice, an unknown key (with the nearest known
            ones), a wrong type, a value outside amct.md §2.1's range, or parameters of two algorithms mixed.
    """
    try:
        data = loads(text)
    except JsonError as error:
        raise ConfigError(f"is no JSON: {error}.", file=file, line=error.line, key=error.key) from error
    body = _Object(data, "", file)
    body.take("version", 1, (1,))
    config = ExpandedConfig(
        batch_num=body.take("batch_num", 1, int),
        activation_offset=body.take("activation_offset", True, bool),
        joint_quant=body.take("joint_quant", None, bool),
        do_fusion=body.take("do_fusion", True, bool),
        force_fp16=body.take("fakequant_precision_mode", None, ("DEFAULT", "FORCE_FP16_QUANT")) == "FORCE_FP16_QUANT",
        skip_fusion_layers=body.names("skip_fusion_layers"),
        tensor_quantize=tuple(_tensor(each) for each in body.list_of("tensor_quantize")),
        layers={name: _layer(body.inner(name)) for name in body.layer_names()},
        file=None if file is None else str(file),
    )
    body.finish()
    return config


class _Object:
    """One JSON object, its keys taken by name; `finish` refuses those nobody took."""

    def __init__(self, data: Any, path: str, file: Place) -> None:
        if not isinstance(data, dict):
            raise ConfigError(f"is {data!r}, not an object in {{ }}.", file=file, key=path or None)
        self.data, self.path, self.file = data, path, file
        self.known: set[str] = set()

    def take(self, key: str, default: Any, kind: type | tuple[str | int, ...]) -> Any:
        """A value of a type (`tuple`: of two numbers), or one of several."""
        self.known.add(key)
        if key not in self.data:
            return default
        value = self.data[key]
        if (broken := _broken(key, value, kind)) is not None:
            raise self.error(f"{value!r} {broken}.", key)
        return tuple(map(float, value)) if kind is tuple else float(value) if kind is float else value

    def inner(self, key: str) -> _Object:
        self.known.add(key)
        return _Object(self.data.get(key, {}), self._at(key), self.file)

    def list_of(self, key: str) -> list[_Object]:
        return [_Object(item, f"{self._at(key)}[{i}]", self.file) for i, item in enumerate(self.take(key, [], list))]

    def names(self, key: str) -> tuple[str, ...]:
        names = self.take(key, [], list)
        if wrong := [name for name in names if not isinstance(name, str) or not name]:
            raise self.error(f"{wrong[0]!r} is not a name.", key)
        if len(set(names)) != len(names):
            raise self.error(f"{names!r} repeats a name.", key)
        return tuple(names)

    def algorithm(self, key: str, known: Mapping[str, Mapping[str, Any]], default: str) -> dict[str, Any]:
        """An algorithm and its parameters; those of others are refused."""
        name = self.take(key, default, tuple(known))
        others = {each for other in known.values() for each in other} - known[name].keys()
        if foreign := [each for each in self.data if each in others]:
            raise self.error(f"is no parameter of {key} {name!r}.", foreign[0])
        return {key: name, **{each: self.take(each, usual, type(usual)) for each, usual in known[name].items()}}

    def layer_names(self) -> list[str]:
        """Keys of the top level that hold an object: AMCT takes every one that is no global key for a layer."""
        return [key for key, value in self.data.items() if key not in GLOBAL_KEYS and isinstance(value, dict)]

    def error(self, rule: str, key: str) -> ConfigError:
        return ConfigError(rule, file=self.file, key=self._at(key))

    def finish(self) -> None:
        if unknown := [key for key in self.data if key not in self.known]:
            raise ConfigError(
                "is an invalid layer name or parameter.",
                file=self.file,
                key=self._at(unknown[0]),
                hint=nearest(unknown[0], self.known),
            )

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def _layer(body: _Object) -> LayerConfig:
    layer = LayerConfig(
        quant_enable=body.take("quant_enable", True, bool),
        dmq_balancer_param=body.take("dmq_balancer_param", None, float),
        activation=_activation(body.inner("activation_quant_params")),
        weight=_weight(body.inner("weight_quant_params")) if "weight_quant_params" in body.data else None,
    )
    body.finish()
    return layer


def _activation(body: _Object) -> ActivationQuantParams:
    activation = ActivationQuantParams(
        num_bits=body.take("num_bits", 8, (4, 8, 16)),
        asymmetric=body.take("asymmetric", None, bool),
        **body.algorithm("act_algo", _ACTIVATIONS, "hfmg" if "num_of_bins" in body.data else "ifmr"),
    )
    if activation.search_range is not None and activation.search_step is not None:
        (start, end), step = activation.search_range, activation.search_step
        if broken := broken_search(start, end, step):
            raise body.error(broken, "search_step" if 0 < start < end else "search_range")
    body.finish()
    return activation


def _weight(body: _Object) -> WeightQuantParams:
    weight = WeightQuantParams(
        num_bits=body.take("num_bits", 8, (4, 6, 7, 8)),
        channel_wise=body.take("channel_wise", None, bool),
        **body.algorithm("wts_algo", _WEIGHTS, "arq_quantize"),
    )
    if weight.beta_range is not None and not 0 < weight.beta_range[1] < weight.beta_range[0]:
        raise body.error(f"{list(weight.beta_range)} is not start > end > 0.", "beta_range")
    body.finish()
    return weight


def _tensor(body: _Object) -> TensorConfig:
    for key in ("layer_name", "input_index"):
        if key not in body.data:
            raise body.error("is missing.", key)
    tensor = TensorConfig(
        layer_name=body.take("layer_name", "", str),
        input_index=body.take("input_index", 0, int),
        activation=_activation(body.inner("activation_quant_params")),
    )
    body.finish()
    return tensor


_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "is not true or false"),
    int: ((int,), "is not a whole number"),
    float: ((int, float), "is not a number"),
    str: ((str,), "is not a name"),
    list: ((list,), "is not a list"),
    tuple: ((list,), "is not a list of two numbers"),
}


def _broken(key: str, value: Any, kind: type | tuple[str | int, ...]) -> str | None:
    if isinstance(kind, tuple):
        one = type(value) is type(kind[0]) and value in kind
        return None if one else f"is none of {', '.join(map(repr, kind))}"
    types, words = _KINDS[kind]
    if type(value) not in types or value == "":
        return words
    if kind is tuple:
        return words if len(value) != 2 or any(_broken("", each, float) for each in value) else None
    if kind in (int, float) and not 0 <= value < math.inf:
        return "is below 0" if value < 0 else "is not finite"
    return broken_rule(key, value) if kind in (int, float) else None
