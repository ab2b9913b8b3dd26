"""Every metric, declared once: what it is called, how it is read off an evaluation, and where it is shown.

Objectives, constraints, tables, pages, MLflow, reports and evidence iterate over these declarations; a new metric is
one entry of `METRICS`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, get_args

from workbench.values.agreement import Agreements
from workbench.values.measurement import Accuracy, AccuracyComparison, Estimate, ServiceFigures, ServiceResult
from workbench.values.results import Evaluation

Direction = Literal["minimize", "maximize"]
Source = Literal["accuracy", "latency", "language", "service", "agreement", "device", "files"]
"""The part of an evaluation that a metric is read from; it decides the evidence."""
Shown = Literal["table", "language table", "view", "holdout"]
"""A column of the report's table, or of that of language models; of MLflow's saved view; logged once more of held-out
data, which is for few, because MLflow's UI draws a chart for each."""
Reading = float | Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """How a number is read: which direction is better, and in what unit.

    Attributes:
        unit: as written behind a value; empty for shares and counts.
    """

    direction: Direction
    unit: str
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredMetric(Metric):
    """A metric of every evaluation that has its source.

    Attributes:
        read: from the part that `source` names; None where it was not measured. An `Estimate` carries its interval.
        label, label_zh: its name in the acceptance report.
        head, form: of a table's column: its head, and how a value is written.
        bounds: the ends of its interval are metrics too, `NAME_low` and `NAME_high`. Those of a prediction, or of
            modelled times, are none: the search would take them for noise of its own.
    """

    source: Source
    read: Callable[[Any], Reading]
    label: str
    label_zh: str
    head: str = ""
    form: str = ".4g"
    shown: tuple[Shown, ...] = ()
    bounds: bool = False


LOSSES = ("accuracy_loss_pp", "accuracy_loss")
FLOAT_INDEX_LOSS = "accuracy_loss_pp_float_index"


def loss_metric(unit: str) -> str:
    """The name under which a drop of a primary metric in `unit` (empty for a share) is searched for and limited."""
    return "accuracy_loss" if unit else "accuracy_loss_pp"


def _primary(a: Accuracy) -> float:
    """Negative where less of the primary metric is better, so that more of it is always better."""
    return a.values[a.primary] if a.higher else -a.values[a.primary]


def _drop(name: str, compared: str) -> Callable[[Accuracy], Reading]:
    def read(a: Accuracy) -> Reading:
        found: AccuracyComparison | None = getattr(a, compared)
        return found.drop_pp if found is not None and loss_metric(a.unit) == name else None

    return read


def _agreed(name: str, *, reference: str = "float32") -> Callable[[Agreements], Reading]:
    """What ships against `reference`, the worst over every way it is called. No errors where an answer is not finite:
    nobody knows how large they are."""

    def read(agreement: Agreements) -> Reading:
        one = agreement.find("served", reference)  # type: ignore[arg-type]  # one of `AgreementPath`
        if one is None or (name in ("max_abs", "mae") and any(output.not_finite for output in one.outputs)):
            return None
        found = getattr(one, name)
        return found.value if isinstance(found, Estimate) else found

    return read


def _served(name: str, *, predicted: bool = False) -> Callable[[ServiceResult], Reading]:
    """At the best settings: as measured under real load where that was done, else as predicted. Where no settings keep
    the limit on P99 there is no throughput, and times are the closest settings', so that a constraint says by how much
    it is broken; nothing is predicted."""

    def read(service: ServiceResult) -> Reading:
        best = service.best if predicted else service.confirmed or service.best
        if service.best is None:
            best = None if predicted or name == "throughput_per_s" else service.closest
        found: Estimate | None = None if best is None else getattr(best, name)
        return found

    return read


def _gain(service: ServiceResult, over: ServiceFigures | None) -> Reading:
    """Predicted throughput as a multiple of that of other settings."""
    if service.best is None or over is None:
        return None
    return service.best.throughput_per_s.value / over.throughput_per_s.value


def _over(name: str, divisor: str | float) -> Callable[[Any], Reading]:
    """A number as a share of another, or in a larger unit."""

    def read(part: Any) -> Reading:
        found = getattr(part, name)
        return None if found is None else found / (getattr(part, divisor) if isinstance(divisor, str) else divisor)

    return read


def _less(
    source: Source, unit: str, read: str | Callable[[Any], Reading], *labels: str, **shown: Any
) -> DeclaredMetric:
    """Of which less is better; `read` may name an attribute, `labels` are in English and Chinese, and the head of a
    column, `shown` the attributes from `form` on."""
    label, label_zh, head = (*labels, *[""] * 3)[:3]
    reading = attrgetter(read) if isinstance(read, str) else read
    return DeclaredMetric(
        direction="minimize", unit=unit, source=source, read=reading, label=label, label_zh=label_zh, head=head, **shown
    )


def _more(*declaration: Any, **shown: Any) -> DeclaredMetric:
    return replace(_less(*declaration, **shown), direction="maximize")


_EVERYWHERE: tuple[Shown, ...] = ("table", "language table", "view", "holdout")
_CHANGE: dict[str, Any] = {"form": ".2f", "shown": _EVERYWHERE, "bounds": True}
_TIME: dict[str, Any] = {"form": ".2f", "shown": ("table", "holdout")}
_LANGUAGE: dict[str, Any] = {"form": ".2f", "shown": ("language table",)}
_SCORE: dict[str, Any] = {"form": ".4f", "shown": ("language table", "holdout")}
_TABLE: dict[str, Any] = {"shown": ("table",)}
_HELD_OUT: dict[str, Any] = {"shown": ("holdout",)}
_SERVED: dict[str, Any] = {"shown": ("view", "holdout")}

METRICS: dict[str, DeclaredMetric] = {
    "accuracy": _more(
        "accuracy",
        "",
        _primary,
        "accuracy (primary metric)",
        "精度（主指标）",
        "accuracy",
        form=".4f",
        shown=_EVERYWHERE,
    ),
    "accuracy_loss_pp": _less(
        "accuracy", "pp", _drop("accuracy_loss_pp", "comparison"), "accuracy loss", "精度损失", **_CHANGE
    ),
    "accuracy_loss": _less(
        "accuracy",
        "",
        _drop("accuracy_loss", "comparison"),
        "accuracy loss (the metric's own unit)",
        "精度损失（指标自身单位）",
        form=".2f",
        **_HELD_OUT,
        bounds=True,
    ),
    FLOAT_INDEX_LOSS: _less(
        "accuracy",
        "pp",
        lambda a: None if a.float_index is None else a.float_index.drop_pp,
        "accuracy loss with an index of the float model",
        "使用浮点模型索引时的精度损失",
        "float index",
        **_CHANGE | {"shown": ("table", "holdout")},
    ),
    "cosine": _more(
        "agreement",
        "",
        _agreed("mean_cosine"),
        "mean cosine with float32",
        "与 float32 的余弦相似度（平均）",
        form=".6f",
    ),
    "worst_cosine": _more(
        "agreement",
        "",
        _agreed("worst_cosine"),
        "worst cosine with float32",
        "与 float32 的余弦相似度（最差）",
        form=".6f",
        **_HELD_OUT,
    ),
    "max_abs": _less(
        "agreement", "", _agreed("max_abs"), "max abs error against float32", "与 float32 的最大绝对误差", **_HELD_OUT
    ),
    "mae": _less(
        "agreement", "", _agreed("mae"), "MAE against float32", "与 float32 的平均绝对误差（MAE）", **_HELD_OUT
    ),
    "top1_agreement": _more(
        "agreement",
        "",
        _agreed("top1"),
        "top-1 agreement with float32",
        "与 float32 的 top-1 一致率",
        "top-1",
        **_SCORE,
    ),
    "perplexity": _less("accuracy", "", lambda a: a.values.get("perplexity"), "perplexity", "困惑度", **_HELD_OUT),
    "kl": _less("accuracy", "nats", lambda a: a.values.get("kl"), "KL divergence", "KL 散度", "KL nats", **_SCORE),
    "prefill_ms": _less(
        "language", "ms", "prefill_ms", "prefill time (modelled)", "预填充时间（推算）", "prefill ms", **_LANGUAGE
    ),
    "decode_ms": _less(
        "language",
        "ms",
        "decode_ms",
        "time of a decoding step (modelled)",
        "解码一步的时间（推算）",
        "decode ms",
        **_LANGUAGE,
    ),
    "kv_kb_per_token": _less(
        "language", "kB", _over("kv_bytes_per_token", 1e3), "KV cache of a token", "每 token 的 KV 缓存", form=".1f"
    ),
    "latency_p50_ms": _less(
        "latency", "ms", "undrifted_p50_ms", "P50 of one call", "单次推理 P50 时延", "P50 ms", **_TIME, bounds=True
    ),
    "latency_p95_ms": _less(
        "latency", "ms", _over("p95_ms", "drift"), "P95 of one call", "单次推理 P95 时延", "P95", form=".2f", **_TABLE
    ),
    "latency_p99_ms": _less(
        "latency", "ms", _over("p99_ms", "drift"), "P99 of one call", "单次推理 P99 时延", "P99", **_TIME
    ),
    "speedup": _more(
        "latency", "x", "speedup", "speed-up over the float baseline", "相对浮点基线的加速比", "speed-up", **_CHANGE
    ),
    "throughput_per_s": _more(
        "latency",
        "/s",
        lambda m: m.throughput_per_s * m.drift,
        "throughput of one session",
        "单会话吞吐",
        "per s",
        form=".0f",
        **_TABLE,
    ),
    "size_mb": _less(
        "files",
        "MB",
        _over("size_bytes", 1e6),
        "compiled files",
        "编译产物大小",
        "MB",
        form=".1f",
        shown=("table", "language table"),
    ),
    "peak_memory_mb": _less(
        "files", "MB", _over("peak_memory_bytes", 1e6), "peak memory", "峰值内存", "mem MB", form=".0f", **_TABLE
    ),
    "startup_s": _less("files", "s", "startup_s", "start-up", "启动时间"),
    "service_throughput_per_s": _more(
        "service", "/s", _served("throughput_per_s"), "throughput of the service", "服务吞吐", form=".0f", **_SERVED
    ),
    "service_p50_ms": _less("service", "ms", _served("p50_ms"), "P50 of the service", "服务 P50 时延", form=".1f"),
    "service_p99_ms": _less(
        "service", "ms", _served("p99_ms"), "P99 of the service", "服务 P99 时延", form=".1f", **_SERVED
    ),
    "int8_ops": _more("files", "", "int8_ops", "operators in INT8", "INT8 算子数"),
    "float_matmuls_left": _less(
        "files", "", "float_matmuls_left", "matrix products left in float", "保留浮点的矩阵乘/卷积算子数"
    ),
}
"""The metrics that an experiment may name, in the order in which reports show them."""


_BEYOND = "_beyond_baseline"
INFORMING: dict[str, DeclaredMetric] = {
    "accuracy_samples": _less("accuracy", "", "samples"),
    **{
        f"{name}{_BEYOND}": _less("accuracy", unit, _drop(name, "against_baseline"), shown=shown, bounds=True)
        for name, unit, shown in (("accuracy_loss_pp", "pp", ("holdout",)), ("accuracy_loss", "", ()))
    },
    "weights_mb": _less("language", "MB", _over("weight_bytes", 1e6)),
    "service_gain": _less("service", "x", lambda s: _gain(s, None if s.untuned_missed else s.untuned)),
    "service_gain_by_lengths": _less("service", "x", lambda s: _gain(s, s.at_untuned_bins)),
    **{
        f"service_predicted_{name}": _less("service", unit, _served(name, predicted=True), shown=shown, bounds=True)
        for name, unit, shown in (
            ("throughput_per_s", "/s", ("holdout",)),
            ("p50_ms", "ms", ()),
            ("p99_ms", "ms", ("holdout",)),
        )
    },
    "device_host_to_device_ms": _less("device", "ms", "host_to_device_ms", "copy to the device", "输入拷贝到设备"),
    "device_execute_ms": _less("device", "ms", "execute_ms", "execution on the device", "设备执行"),
    "device_device_to_host_ms": _less("device", "ms", "device_to_host_ms", "copy to the host", "输出拷贝到主机"),
    "device_memory_mb": _less("device", "MB", _over("memory_bytes", 1e6), "device memory", "设备内存"),
    "device_power_w": _less("device", "W", "power_w", "device power", "设备功耗"),
    "device_utilization_percent": _less("device", "%", "utilization_percent", "device utilization", "设备利用率"),
    "device_temperature_c": _less("device", "°C", "temperature_c", "device temperature", "设备温度"),
    **{
        f"{name}{_BEYOND}": _less("agreement", "", _agreed(field, reference="float16 compiled"))
        for name, field in (
            ("cosine", "mean_cosine"),
            ("worst_cosine", "worst_cosine"),
            ("max_abs", "max_abs"),
            ("mae", "mae"),
            ("top1_agreement", "top1"),
        )
    },
}
"""Beside them, what is logged and shown of every evaluation. `_beyond_baseline` is what is lost beyond the float
baseline, where that computes in fewer bits than float32."""


_ALL = ChainMap(INFORMING, METRICS)  # goes through the last one first


def declared(name: str) -> DeclaredMetric | None:
    """None for the values of a dataset's own metric, by whatever names it has."""
    return _ALL.get(name)


def shown_in(place: Shown) -> tuple[str, ...]:
    """Names of the metrics that are shown there, in order."""
    return tuple(name for name, metric in _ALL.items() if place in metric.shown)


def part_of(evaluation: Evaluation, source: Source) -> object | None:
    """What the metrics of `source` are read from; None where it was not measured."""
    if source == "agreement":
        return evaluation.agreement
    return evaluation.measurement if source == "files" else getattr(evaluation.measurement, source)


def metrics(evaluation: Evaluation) -> dict[str, float]:
    """Every number of an evaluation under its stable public name, the names objectives and trackers use.

    `accuracy` is the dataset's primary metric whatever its own name; what was not measured is absent. Times are
    corrected for the drift of the machine since the sweep began (`Latency.drift`).
    """
    accuracy = evaluation.measurement.accuracy
    found = {} if accuracy is None else dict(accuracy.values)
    read = _readings(evaluation)
    found |= _values(read)
    for name, value in read.items():
        if isinstance(value, Estimate) and _ALL[name].bounds:
            found[f"{name}_low"], found[f"{name}_high"] = value.low, value.high
    return found


def intervals(evaluation: Evaluation) -> dict[str, Estimate]:
    """The interval of each of `metrics` that has one, under its name: every report takes it from here.

    That of a modelled throughput takes the errors of its parts (`modelled_times.figures`), and is not here.
    """
    return {name: value for name, value in _readings(evaluation).items() if isinstance(value, Estimate)}


def _readings(evaluation: Evaluation) -> dict[str, Reading]:
    parts = {source: part_of(evaluation, source) for source in get_args(Source)}
    return {n: metric.read(part) for n, metric in _ALL.items() if (part := parts[metric.source]) is not None}


def accuracy_metrics(accuracy: Accuracy) -> dict[str, float]:
    """The part of `metrics` that an accuracy alone decides, under the same names, without bounds."""
    return dict(accuracy.values) | _values({n: m.read(accuracy) for n, m in _ALL.items() if m.source == "accuracy"})


def agreement_metrics(agreement: Agreements) -> dict[str, float]:
    """The part of `metrics` that an agreement alone decides."""
    return _values({n: m.read(agreement) for n, m in _ALL.items() if m.source == "agreement"})


def _values(read: Mapping[str, Reading]) -> dict[str, float]:
    known = {name: value for name, value in read.items() if value is not None}
    return {name: value.value if isinstance(value, Estimate) else value for name, value in known.items()}


def asked_beside(names: Iterable[str], shown: Iterable[str]) -> list[str]:
    """Metrics that somebody asked for and that are not among those shown anyway."""
    known = set(shown)
    return [name for name in dict.fromkeys(names) if name not in known and name in METRICS]


def apart_words(a: float, b: float) -> tuple[str, str]:
    """Two values with as many digits, four at least, as tell them apart."""
    forms = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in range(4, 18))
    return next((pair for pair in forms if pair[0] != pair[1]), (str(a), str(b)))
