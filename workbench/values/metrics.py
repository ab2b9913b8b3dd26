"""An evaluation's numbers under the names that objectives, constraints and trackers use."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.values.documents.canonical import encode
from workbench.values.fidelity import Fidelity, FidelityPath
from workbench.values.measurement import Accuracy, Estimate, ServiceResult
from workbench.values.results import Evaluation

FIDELITY_METRICS: Mapping[str, str] = {
    "cosine": "mean_cosine",
    "worst_cosine": "worst_cosine",
    "max_abs": "max_abs",
    "mae": "mae",
}
"""Metric → field of `Agreement`; beside them `top1_agreement`."""
REFERENCES: tuple[tuple[FidelityPath, str], ...] = (("float32", ""), ("float16 compiled", "_beyond_baseline"))

_UNPUBLISHED = ("service_throughput", "service_p50", "service_p99", "prefill_ms", "decode_ms")
"""Ends of these intervals are no metrics: the search would take a prediction's, or a clock's, for noise of its own."""


def metrics(evaluation: Evaluation) -> dict[str, float]:
    """Every number of an evaluation under its stable public name, the names objectives and trackers use.

    `accuracy` is the dataset's primary metric whatever its own name; what was not measured is absent. Times are
    corrected for the drift of the machine since the sweep began (`Latency.drift`).
    """
    m = evaluation.measurement
    found: dict[str, float] = {}
    if m.accuracy is not None:
        found.update(accuracy_metrics(m.accuracy))
    if m.latency is not None:
        drift = m.latency.drift
        found["latency_p50_ms"] = m.latency.undrifted_p50_ms.value
        found["latency_p95_ms"] = m.latency.p95_ms / drift
        if m.latency.p99_ms is not None:
            found["latency_p99_ms"] = m.latency.p99_ms / drift
        found["throughput_per_s"] = m.latency.throughput_per_s * drift
        found["speedup"] = m.latency.speedup.value
    if m.startup_s is not None:
        found["startup_s"] = m.startup_s
    if m.language is not None:
        found["prefill_ms"] = m.language.prefill_ms.value
        found["decode_ms"] = m.language.decode_ms.value
        found["kv_kb_per_token"] = m.language.kv_bytes_per_token / 1e3
        found["weights_mb"] = m.language.weight_bytes / 1e6
    if m.service is not None:
        found.update(_service_metrics(m.service))
    for name, size in (("size_mb", m.size_bytes), ("peak_memory_mb", m.peak_memory_bytes)):
        if size is not None:
            found[name] = size / 1e6
    if m.device is not None:
        shown = {f"device_{name}": value for name, value in encode(m.device).items() if name != "memory_bytes"}
        found.update({name: float(value) for name, value in shown.items() if value is not None})
        found["device_memory_mb"] = m.device.memory_bytes / 1e6
    if evaluation.fidelity is not None:
        found.update(fidelity_metrics(evaluation.fidelity))
    for name, count in (("int8_ops", m.int8_ops), ("float_matmuls_left", m.float_matmuls_left)):
        if count is not None:
            found[name] = count
    for name, known in intervals(evaluation).items():
        if not name.startswith(_UNPUBLISHED):
            found[f"{name}_low"], found[f"{name}_high"] = known.low, known.high
    return found


def intervals(evaluation: Evaluation) -> dict[str, Estimate]:
    """The interval of each of `metrics` that has one, under its name: every report takes it from here.

    That of a modelled throughput takes the errors of its parts (`modelled_times.figures.interval_of`), and is not here.
    """
    m = evaluation.measurement
    found: dict[str, Estimate] = {}
    if m.accuracy is not None:
        name = drop_metric(m.accuracy.unit)
        tested = {name: m.accuracy.comparison, f"{name}_beyond_baseline": m.accuracy.against_baseline}
        found |= {metric: one.drop_pp for metric, one in tested.items() if one is not None}
    if m.latency is not None:
        found |= {"speedup": m.latency.speedup, "latency_p50_ms": m.latency.undrifted_p50_ms}
    if m.language is not None:
        found |= {"prefill_ms": m.language.prefill_ms, "decode_ms": m.language.decode_ms}
    if m.service is not None:
        best = m.service.best
        shown = {"service": m.service.confirmed or best or m.service.closest, "service_predicted": best}
        for prefix, figures in shown.items():
            if best is not None and figures is not None:
                found[f"{prefix}_throughput_per_s"] = figures.throughput_per_s
            if figures is not None:
                found[f"{prefix}_p50_ms"], found[f"{prefix}_p99_ms"] = figures.p50_ms, figures.p99_ms
    return found


def accuracy_metrics(accuracy: Accuracy) -> dict[str, float]:
    """The part of `metrics` that an accuracy alone decides, under the same names.

    `accuracy` is negative where less of the primary metric is better, so that more of it is always better. The drop is
    `accuracy_drop_pp` for a share of 0..1 and `accuracy_drop`, in the metric's own unit, for any other metric; with
    `_beyond_baseline` what is lost beyond the float baseline, where that computes in fewer bits than float32.
    """
    primary = accuracy.values[accuracy.primary]
    found = {
        **accuracy.values,
        "accuracy": primary if accuracy.higher else -primary,
        "accuracy_samples": accuracy.samples,
    }
    if accuracy.comparison is not None:
        found[drop_metric(accuracy.unit)] = accuracy.comparison.drop_pp.value
    if accuracy.against_baseline is not None:
        found[f"{drop_metric(accuracy.unit)}_beyond_baseline"] = accuracy.against_baseline.drop_pp.value
    return found


def fidelity_metrics(fidelity: Fidelity) -> dict[str, float]:
    """What ships against float32, the worst over every way it is called; and against the float baseline as it runs
    today, where that computes in fewer bits, with `_beyond_baseline`. No errors where an answer is not finite."""
    found: dict[str, float] = {}
    for reference, suffix in REFERENCES:
        one = fidelity.find("served", reference)
        if one is None:
            continue
        sound = not any(output.not_finite for output in one.outputs)  # else nobody knows how large errors are
        measured = FIDELITY_METRICS if sound else {n: f for n, f in FIDELITY_METRICS.items() if "cosine" in n}
        found |= {f"{name}{suffix}": getattr(one, field) for name, field in measured.items()}
        if one.top1 is not None:
            found[f"top1_agreement{suffix}"] = one.top1.value
    return found


def apart_words(a: float, b: float) -> tuple[str, str]:
    """Two values with as many digits, four at least, as tell them apart."""
    forms = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in range(4, 18))
    return next((pair for pair in forms if pair[0] != pair[1]), (str(a), str(b)))


def drop_metric(unit: str) -> str:
    """The name under which a drop of a primary metric in `unit` (empty for a share) is searched for and limited."""
    return "accuracy_drop" if unit else "accuracy_drop_pp"


def _service_metrics(service: ServiceResult) -> dict[str, float]:
    """Of the best settings: as measured under real load where that was done, else as predicted; the prediction always
    has a name of its own too.

    Where no settings keep the limit on P99, there is no throughput, and P99 is the closest settings', so that a
    constraint on it says by how much it is broken.
    """
    if service.best is None:
        return {"service_p50_ms": service.closest.p50_ms.value, "service_p99_ms": service.closest.p99_ms.value}
    found = {}
    if not service.untuned_missed:
        found["service_gain"] = service.best.throughput_per_s.value / service.untuned.throughput_per_s.value
    if service.at_untuned_bins is not None:
        before = service.at_untuned_bins.throughput_per_s.value
        found["service_gain_by_lengths"] = service.best.throughput_per_s.value / before
    for prefix, figures in (("service", service.confirmed or service.best), ("service_predicted", service.best)):
        found[f"{prefix}_throughput_per_s"] = figures.throughput_per_s.value
        found[f"{prefix}_p50_ms"] = figures.p50_ms.value
        found[f"{prefix}_p99_ms"] = figures.p99_ms.value
    return found
