"""What an evaluation gives back: values, never sentinels.

A failed evaluation has a `Failure` and no number; a stopped one has the numbers of the stages it reached and the
reason it went no further. Latency is in milliseconds, sizes in bytes, differences in accuracy in percentage points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.documents.canonical import added_later, decode, digest, encode
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings

Status = Literal["complete", "stopped", "failed"]
Split = Literal["calibration", "validation", "holdout"]
Clock = Literal["host", "modelled"]
"""What times were read from: the host's clock, or an emulated device's model of the real one."""

STAGES = (
    "check",
    "calibrate",
    "lower",
    "compile",
    "smoke",
    "accuracy_subset",
    "latency_short",
    "accuracy_full",
    "latency_full",
    "service",
)
"""The gate ladder, in order: each stage costs more than the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its confidence interval; `low <= value <= high`."""

    value: float
    low: float
    high: float
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Everything outside the candidate that can change a compiled file or a measured number.

    Attributes:
        components: name → version of each library, compiler and driver that takes part.
        device: what executes, such as the CPU model name.
        features: instruction sets or device facts that select kernels, sorted.
        emulated: True when any part is our emulator; such results are never mixed with measured ones.
    """

    target: str
    components: Mapping[str, str]
    device: str
    features: tuple[str, ...] = ()
    emulated: bool = False

    @property
    def fingerprint(self) -> str:
        """64 hex digits that change when any field does."""
        return digest(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFile:
    """One executable file of an artifact.

    Attributes:
        batch, sequence_bin: the fixed shape it was compiled for; None where that dimension is dynamic.
        file: path relative to the artifact's directory.
    """

    batch: int | None
    sequence_bin: int | None
    file: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A compiled candidate: a set of files, one per (batch, sequence bin), and what is inside them.

    The directory is not part of the value: an artifact is the same wherever it lies.

    Attributes:
        int8_ops: operators that execute in integer kernels, counted in the compiled graph.
        float_matmuls_left: MatMul, Gemm and Conv operators (fused forms included) left in float.
        kernels: operator type → count in the compiled graph.
    """

    target: str
    files: tuple[CompiledFile, ...]
    toolchain: Toolchain
    int8_ops: int
    float_matmuls_left: int
    kernels: Mapping[str, int]

    @property
    def size_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyComparison:
    """A paired comparison with the float baseline over the same samples.

    Attributes:
        drop_pp: by how much the candidate is worse in the primary metric; negative is a gain. In percentage points for
            a share of 0..1; otherwise in the metric's own `unit` (the name is that of the common case).
        p_value: of the two-sided test that there is no difference.
        test: name of the test, such as 'McNemar exact' or 'paired bootstrap over sentences'.
        unit: of the drop: 'pp', or the metric's own, such as 'dB'.
    """

    drop_pp: Estimate
    p_value: float
    test: str
    unit: str = added_later("pp")

    @property
    def is_share(self) -> bool:
        """The metric is a share of 0..1, so its drop is in percentage points."""
        return self.unit == "pp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Scores over one split.

    Attributes:
        primary: name of the metric in `values` that objectives and constraints call 'accuracy'.
        values: metric → value in its natural unit (shares in 0..1).
        samples: how many samples were scored; fewer than the split's size before the full stage.
        comparison: None for the baseline itself.
        unit: of the primary metric, such as 'dB'; empty for a share of 0..1.
        higher: more of the primary metric is better.
        proof: of the baseline, what planted noise does to the primary metric, in words; empty where none was planted.
    """

    primary: str
    values: Mapping[str, float]
    samples: int
    split: Split
    comparison: AccuracyComparison | None = None
    unit: str = added_later("")
    higher: bool = added_later(True)
    proof: str = added_later("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Times of single calls, interleaved with the float baseline in one process.

    Attributes:
        samples: timed calls of the candidate (the baseline has as many).
        p99_ms: None with fewer than 1000 samples: a P99 from less is a guess.
        throughput_per_s: samples (not calls) per second of one session called back to back.
        speedup: baseline time over candidate time, paired by round, with a bootstrap interval.
        baseline_p50_ms: the baseline's median in the same rounds; its drift is the machine's drift.
        quiet: False when the machine disturbed the timing; `verdict` says how, in words.
        drift: the baseline's median here over its median when this sweep first timed it at this batch size; 1.1
            says that the machine ran everything 10 % slower now. `metrics` divides times by it, so that
            candidates timed hours apart compare; the fields of this class stay as timed.
        clock: 'modelled' times were measured nowhere.
    """

    batch: int
    samples: int
    warmup_calls: int
    p50_ms: Estimate
    p95_ms: float
    p99_ms: float | None
    mean_ms: float
    throughput_per_s: float
    speedup: Estimate
    baseline_p50_ms: float
    quiet: bool
    verdict: str
    drift: float = 1.0
    clock: Clock = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """What a device beside the host says of the calls that were timed; None where it could not be read.

    Attributes:
        host_to_device_ms, execute_ms, device_to_host_ms: medians, by the device's own events.
        memory_bytes: device memory of the session: weights, work memory, buffers.
        power_w, utilization_percent, temperature_c: medians of samples taken while it ran.
    """

    host_to_device_ms: float
    execute_ms: float
    device_to_host_ms: float
    memory_bytes: int
    power_w: float | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The time of one call of a model at one shape.

    Attributes:
        batch, length: rows and padded positions of the call; length 0 where samples are not sequences.
        quantiles_ms: at evenly spaced probabilities from 0 to 1, both ends included: the spread of single calls.
    """

    batch: int
    length: int
    calls: int
    p50_ms: Estimate
    mean_ms: float
    quantiles_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """Latency against batch and length bin of one artifact, measured once; every service prediction rests on it.

    Attributes:
        points: sorted by length, then batch; every length has the same batches.
        stepped: a call of n rows costs what the smallest measured batch that holds n costs (fixed shapes), instead of
            lying between its neighbours.
        threads: threads that one call keeps busy on the host; 0 where a device computes.
        drift: the machine's speed while it was measured, as in `Latency.drift`; a curve inside a `ServiceResult` has
            been divided by it.
        quiet: False when the machine disturbed the timing; `verdict` says how, in words.
    """

    points: tuple[CurvePoint, ...]
    stepped: bool
    threads: int
    clock: Clock
    drift: float = 1.0
    quiet: bool = True
    verdict: str = ""

    @property
    def batches(self) -> tuple[int, ...]:
        return tuple(sorted({p.batch for p in self.points}))

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sorted({p.length for p in self.points}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFigures:
    """A service under a load: simulated ('predicted'), or the real one under a load generator ('measured').

    Attributes:
        throughput_per_s: answered samples (each request carries one) per second.
        p50_ms, p95_ms, p99_ms: of requests as their client sees them, from the intended moment of sending.
        mean_batch: rows in a batch; `padding_share`: padded positions among all that were computed.
        worker_busy: share of the time that a worker computes.
        errors: answers that were no success; they are not in the latencies.
        host: the costs a prediction assumed; None for a measurement.
        clock: 'modelled' where the model's own times are.
        reliable: False says that the figure must not be relied on; `note` says why, in words.
    """

    kind: Literal["predicted", "measured"]
    settings: ServiceSettings
    load: ServiceLoad
    requests: int
    throughput_per_s: Estimate
    p50_ms: Estimate
    p95_ms: Estimate
    p99_ms: Estimate
    mean_batch: float
    padding_share: float
    worker_busy: float | None = None
    errors: int = 0
    devices: int = 1
    host: HostCosts | None = None
    clock: Clock = "host"
    reliable: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The best service settings of one artifact, and what they rest on.

    Attributes:
        best: None where no setting keeps the limit on P99; then `closest` came nearest.
        untuned: the same artifact at the first choices of the space, which nobody tuned.
        tried: settings that were simulated, in `simulated_s` seconds.
        confirmed: `best` under real load; None where it was not, and then `note` may say why.
    """

    curve: BatchCurve
    best: ServiceFigures | None
    closest: ServiceFigures
    untuned: ServiceFigures
    tried: int
    simulated_s: float
    confirmed: ServiceFigures | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All that was measured before the evaluation ended; None where its stage was not reached.

    Attributes:
        peak_memory_bytes: what loading and running adds: resident memory of the process for a target that computes
            on the host, device memory for one beside it.
        device: None for a target that computes on the host.
        startup_s: opening every file of the artifact until the first answer.
        service: None where the experiment asks for no service.
    """

    accuracy: Accuracy | None = None
    latency: Latency | None = None
    size_bytes: int | None = None
    peak_memory_bytes: int | None = None
    int8_ops: int | None = None
    float_matmuls_left: int | None = None
    device: DeviceFigures | None = None
    startup_s: float | None = None
    service: ServiceResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an evaluation has no result.

    Attributes:
        kind: class name of the error.
        reproduce: the command that runs this candidate again.
        transient: True when a second try may succeed; such a failure is not kept in any cache.
    """

    stage: str
    kind: str
    message: str
    reproduce: str
    log_path: str | None = None
    transient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a sound candidate was not measured any further.

    Attributes:
        violations: constraint name → by how much it is certainly violated (> 0), in the constraint's unit.
    """

    stage: str
    reason: str
    violations: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTiming:
    """Wall time of one stage; `cached` when its result came from the store."""

    stage: str
    seconds: float
    cached: bool = False


MAX_ATTEMPTS = 2
"""So many attempts a sweep makes at a candidate that fails by no fault of its own, one in each run of the sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What `evaluate` returns for every candidate, whatever became of it.

    Attributes:
        attempt: 1, or more where a sweep tried again after a transient failure; this is the last attempt's outcome.
        cut: what is less in it than the experiment asks for, in words, since the time of the run was short; a sweep
            with more time makes it again.
    """

    candidate: Candidate
    status: Status
    stage_reached: str
    split: Split
    measurement: Measurement
    stages: tuple[StageTiming, ...]
    toolchain: Toolchain
    started_at: str
    failure: Failure | None = None
    stop: Stop | None = None
    attempt: int = 1
    cut: tuple[str, ...] = added_later(())

    def __post_init__(self) -> None:
        if (self.status == "failed") != (self.failure is not None):
            raise ValueError("a failed evaluation, and no other, carries a failure")
        if (self.status == "stopped") != (self.stop is not None):
            raise ValueError("a stopped evaluation, and no other, carries a stop")
        if self.status == "complete" and (self.measurement.accuracy is None or self.measurement.latency is None):
            raise ValueError("a complete evaluation has accuracy and latency")

    @property
    def seconds(self) -> float:
        return sum(s.seconds for s in self.stages)

    @property
    def deserves_another(self) -> bool:
        """It failed by the machine's moment, and not every attempt is spent: a sweep that goes on tries again."""
        return self.failure is not None and self.failure.transient and self.attempt < MAX_ATTEMPTS

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, **encode(self), "candidate": self.candidate.to_json()}


def evaluation_from_json(data: dict[str, Any]) -> Evaluation:
    """Rebuild an evaluation from `Evaluation.to_json`.

    Raises:
        DecodeError: the stored form does not fit this version.
    """
    body = dict(data)
    version = body.pop("version", None)
    if version != 1:
        raise ValueError(f"evaluation version {version!r} is unknown; this workbench reads version 1")
    candidate = candidate_from_json(body["candidate"])
    body["candidate"] = encode(candidate)
    return decode(Evaluation, body, "evaluation")


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
        found["latency_p50_ms"] = m.latency.p50_ms.value / drift
        found["latency_p95_ms"] = m.latency.p95_ms / drift
        if m.latency.p99_ms is not None:
            found["latency_p99_ms"] = m.latency.p99_ms / drift
        found["throughput_per_s"] = m.latency.throughput_per_s * drift
        found["speedup"] = m.latency.speedup.value
        found["speedup_low"] = m.latency.speedup.low
        found["speedup_high"] = m.latency.speedup.high
    if m.startup_s is not None:
        found["startup_s"] = m.startup_s
    if m.service is not None:
        found.update(_service_metrics(m.service))
    for name, size in (("size_mb", m.size_bytes), ("peak_memory_mb", m.peak_memory_bytes)):
        if size is not None:
            found[name] = size / 1e6
    if m.device is not None:
        shown = {f"device_{name}": value for name, value in encode(m.device).items() if name != "memory_bytes"}
        found.update({name: float(value) for name, value in shown.items() if value is not None})
        found["device_memory_mb"] = m.device.memory_bytes / 1e6
    for name, count in (("int8_ops", m.int8_ops), ("float_matmuls_left", m.float_matmuls_left)):
        if count is not None:
            found[name] = count
    return found


def accuracy_metrics(accuracy: Accuracy) -> dict[str, float]:
    """The part of `metrics` that an accuracy alone decides, under the same names.

    `accuracy` is negative where less of the primary metric is better, so that more of it is always better. The drop is
    `accuracy_drop_pp` for a share of 0..1 and `accuracy_drop`, in the metric's own unit, for any other metric.
    """
    primary = accuracy.values[accuracy.primary]
    found = {
        **accuracy.values,
        "accuracy": primary if accuracy.higher else -primary,
        "accuracy_samples": accuracy.samples,
    }
    if accuracy.comparison is not None:
        drop, name = accuracy.comparison.drop_pp, drop_metric(accuracy.unit)
        found[name] = drop.value
        found[f"{name}_low"] = drop.low
        found[f"{name}_high"] = drop.high
    return found


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
    found = {"service_gain": service.best.throughput_per_s.value / service.untuned.throughput_per_s.value}
    for prefix, figures in (("service", service.confirmed or service.best), ("service_predicted", service.best)):
        found[f"{prefix}_throughput_per_s"] = figures.throughput_per_s.value
        found[f"{prefix}_p50_ms"] = figures.p50_ms.value
        found[f"{prefix}_p99_ms"] = figures.p99_ms.value
    return found
