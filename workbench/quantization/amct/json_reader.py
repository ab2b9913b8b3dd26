"""Reading AMCT's quantization JSON as strictly as AMCT does, with the path of what is wrong (amct.md §2.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from workbench.quantization.amct.json_form import (
    GLOBAL_KEYS,
    ActivationQuantParams,
    ExpandedConfig,
    LayerConfig,
    TensorConfig,
    WeightQuantParams,
)
from workbench.quantization.amct.protobuf_text import Place
from workbench.quantization.recipe import HFMG_BINS
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, nearest

_PRECISION_MODES = ("DEFAULT", "FORCE_FP16_QUANT")
_IFMR_KEYS = ("max_percentile", "min_percentile", "search_range", "search_step")
_ADA_KEYS = ("num_iteration", "reg_param", "beta_range", "warm_start")
_NUQ_KEYS = ("num_steps", "num_of_iteration")


def parse_config_json(text: str, *, file: Place = None) -> ExpandedConfig:
    """The configuration a JSON text holds, AMCT's defaults filled in for what it leaves out.

    Raises:
        ConfigError: with file and key path: no JSON, a key given twice, an unknown key (with the nearest known
            ones), a wrong type, a value outside amct.md §2.1's range, or parameters of two algorithms mixed.
    """
    body = _Object(_load(text, file), "", file)
    body.take("version", 1, lambda value: _whole(value, choices=(1,)))
    mode = body.take("fakequant_precision_mode", "DEFAULT", lambda value: _one_of(value, _PRECISION_MODES))
    config = ExpandedConfig(
        batch_num=body.take("batch_num", 1, lambda value: _whole(value, least=1)),
        activation_offset=body.take("activation_offset", True, _boolean),
        joint_quant=body.take("joint_quant", None, _boolean),
        do_fusion=body.take("do_fusion", True, _boolean),
        force_fp16=mode == "FORCE_FP16_QUANT",
        skip_fusion_layers=body.take("skip_fusion_layers", (), _names),
        tensor_quantize=tuple(_tensor(each) for each in body.list_of("tensor_quantize")),
        layers={name: _layer(body.inner(name)) for name in body.layer_names()},
        file=None if file is None else str(file),
    )
    body.finish()
    return config


def _load(text: str, file: Place) -> Any:
    try:
        return loads(text)
    except JsonError as error:
        raise ConfigError(f"is no JSON: {error}.", file=file, line=error.line, key=error.key) from error


class _Object:
    """One JSON object, its keys taken by name; `finish` refuses those nobody took."""

    def __init__(self, data: Any, path: str, file: Place) -> None:
        if not isinstance(data, dict):
            raise ConfigError(f"is {data!r}, not an object in {{ }}.", file=file, key=path or None)
        self.data, self.path, self.file = data, path, file
        self.known: set[str] = set()

    def take(self, key: str, default: Any, read: Callable[[Any], Any]) -> Any:
        """The value, as `read` gives it; `read` raises ValueError with the rule that is broken."""
        self.known.add(key)
        if key not in self.data:
            return default
        try:
            return read(self.data[key])
        except ValueError as error:
            raise ConfigError(f"{self.data[key]!r} {error}.", file=self.file, key=self._at(key)) from error

    def inner(self, key: str) -> _Object:
        self.known.add(key)
        return _Object(self.data.get(key, {}), self._at(key), self.file)

    def list_of(self, key: str) -> list[_Object]:
        items = self.take(key, [], _list)
        return [_Object(item, f"{self._at(key)}[{i}]", self.file) for i, item in enumerate(items)]

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
        quant_enable=body.take("quant_enable", True, _boolean),
        dmq_balancer_param=body.take("dmq_balancer_param", None, lambda value: _real(value, 0.2, 0.8)),
        activation=_activation(body.inner("activation_quant_params")),
        weight=_weight(body.inner("weight_quant_params")) if "weight_quant_params" in body.data else None,
    )
    body.finish()
    return layer


def _activation(body: _Object) -> ActivationQuantParams:
    guess = "hfmg" if "num_of_bins" in body.data else "ifmr"
    algorithm = body.take("act_algo", guess, lambda value: _one_of(value, ("ifmr", "hfmg")))
    common = {
        "num_bits": body.take("num_bits", 8, lambda value: _whole(value, choices=(4, 8, 16))),
        "act_algo": algorithm,
        "asymmetric": body.take("asymmetric", None, _boolean),
    }
    foreign = [key for key in body.data if key in (_IFMR_KEYS if algorithm == "hfmg" else ("num_of_bins",))]
    if foreign:
        raise body.error(f"is no parameter of act_algo {algorithm!r}.", foreign[0])
    if algorithm == "hfmg":
        bins = body.take("num_of_bins", 4096, lambda value: _whole(value, choices=HFMG_BINS))
        activation = ActivationQuantParams(**common, num_of_bins=bins)
    else:
        start, end = body.take("search_range", (0.7, 1.3), lambda value: _pair(value, ascending=True))
        step = body.take("search_step", 0.01, lambda value: _real(value, 0, math.inf, open_low=True))
        if Decimal(str(step)) > Decimal(str(end)) - Decimal(str(start)):
            raise body.error(f"{step} is more than the search range [{start}, {end}].", "search_step")
        activation = ActivationQuantParams(
            **common,
            max_percentile=body.take("max_percentile", 0.999999, _percentile),
            min_percentile=body.take("min_percentile", 0.999999, _percentile),
            search_range=(start, end),
            search_step=step,
        )
    body.finish()
    return activation


def _weight(body: _Object) -> WeightQuantParams:
    algorithms = ("arq_quantize", "ada_quantize", "nuq_quantize")
    algorithm = body.take("wts_algo", "arq_quantize", lambda value: _one_of(value, algorithms))
    allowed = {"ada_quantize": _ADA_KEYS, "nuq_quantize": _NUQ_KEYS}.get(algorithm, ())
    if foreign := [key for key in body.data if key in _ADA_KEYS + _NUQ_KEYS and key not in allowed]:
        raise body.error(f"is no parameter of wts_algo {algorithm!r}.", foreign[0])
    values: dict[str, Any] = {}
    if algorithm == "ada_quantize":
        values = {
            "num_iteration": body.take("num_iteration", 10000, lambda value: _whole(value, least=1)),
            "reg_param": body.take("reg_param", 0.01, _open_share),
            "beta_range": body.take("beta_range", (20.0, 2.0), lambda value: _pair(value, ascending=False)),
            "warm_start": body.take("warm_start", 0.2, _open_share),
        }
    elif algorithm == "nuq_quantize":
        values = {
            "num_steps": body.take("num_steps", 32, lambda value: _whole(value, choices=(16, 32))),
            "num_of_iteration": body.take("num_of_iteration", 0, lambda value: _whole(value, choices=range(6))),
        }
    weight = WeightQuantParams(
        num_bits=body.take("num_bits", 8, lambda value: _whole(value, choices=(4, 6, 7, 8))),
        wts_algo=algorithm,
        channel_wise=body.take("channel_wise", None, _boolean),
        **values,
    )
    body.finish()
    return weight


def _tensor(body: _Object) -> TensorConfig:
    for key in ("layer_name", "input_index"):
        if key not in body.data:
            raise body.error("is missing.", key)
    tensor = TensorConfig(
        layer_name=body.take("layer_name", "", _text),
        input_index=body.take("input_index", 0, _whole),
        activation=_activation(body.inner("activation_quant_params")),
    )
    body.finish()
    return tensor


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is not true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is not a name")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("is not a list")
    return value


def _names(value: Any) -> tuple[str, ...]:
    names = tuple(_text(name) for name in _list(value))
    if len(set(names)) != len(names):
        raise ValueError("repeats a name")
    return names


def _one_of(value: Any, names: tuple[str, ...]) -> str:
    if value not in names:
        raise ValueError(f"is none of {', '.join(map(repr, names))}")
    return str(value)


def _whole(value: Any, *, least: int = 0, choices: tuple[int, ...] | range = ()) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("is not a whole number")
    if value < least:
        raise ValueError(f"is below {least}")
    if choices and value not in choices:
        raise ValueError(f"is none of {', '.join(map(str, choices))}")
    return value


def _real(value: Any, low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("is not a number")
    if not math.isfinite(value):
        raise ValueError("is not finite")
    if value < low or value > high or (open_low and value == low) or (open_high and value == high):
        raise ValueError(f"is outside {'(' if open_low else '['}{low}, {high}{')' if open_high else ']'}")
    return float(value)


def _percentile(value: Any) -> float:
    return _real(value, 0.5, 1.0, open_low=True)


def _open_share(value: Any) -> float:
    return _real(value, 0.0, 1.0, open_low=True, open_high=True)


def _pair(value: Any, *, ascending: bool) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("is not a list of two numbers")
    start, end = (_real(each, -math.inf, math.inf) for each in value)
    if ascending and not 0 < start < end:
        raise ValueError("is not 0 < start < end")
    if not ascending and not 0 < end < start:
        raise ValueError("is not start > end > 0")
    return start, end
