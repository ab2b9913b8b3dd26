"""What was measured of a candidate: accuracy, times of calls, a device's figures, and a service's.

Latency is in milliseconds, sizes in bytes, differences in accuracy in percentage points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from workbench.values.documents.canonical import added_later
from workbench.values.modelled_times.statement import CallCosts, ModelledCalls, ModelledService, TimingModel
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings

Split = Literal["calibration", "validation", "holdout"]

Clock = Literal["host", "modelled"]
"""What times were read from: the host's clock, or an emulated device's model of the real one."""


CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its confidence interval; `low <= value <= high`."""

    value: float
    low: float
    high: float
    confidence: float = CONFIDENCE


SAME_ANSWERS = "the same answers"
"""Test of a comparison that needs none: both compute the same, so that the drop is exactly 0."""


_LOSS, _FORMER_LOSS = "accuracy_loss", "accuracy_drop"


def current_name(metric: str) -> str:
    """The name of a metric that files of earlier versions call otherwise."""
    return metric.replace(_FORMER_LOSS, _LOSS)


def former_name(metric: str) -> str:
    """What digests of stored sweeps hold in the place of its name."""
    return metric.replace(_LOSS, _FORMER_LOSS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyComparison:
    """A paired comparison of one model's answers with a reference's, over the same samples.

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


FLOAT_INDEX = "float_index."
"""Before the name of a retrieval's metric: of queries that search the documents as the float model embeds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Scores over one split.

    Attributes:
        primary: name of the metric in `values` that objectives and constraints call 'accuracy'.
        values: metric → value in its natural unit (shares in 0..1).
        samples: how many samples were scored; fewer than the split's size before the full stage.
        comparison: with the float model in float32; None for a baseline that is just that.
        reference: what computed in float32, where the float baseline does not; empty where the baseline is it.
        against_baseline: with the float baseline as it runs today, where that computes in fewer bits than float32: what
            a candidate loses beyond the baseline's own loss. None for the baseline itself.
        unit: of the primary metric, such as 'dB'; empty for a share of 0..1.
        higher: more of the primary metric is better.
        proof: of the baseline, what planted noise does to the primary metric, in words; empty where none was planted.
        alike: of the baseline, that it decides every sample alike, in a sentence; empty where it does not.
        float_index: of a retrieval, the primary metric where documents are the float model's, compared with the float
            model in float32; None elsewhere.
    """

    primary: str
    values: Mapping[str, float]
    samples: int
    split: Split
    comparison: AccuracyComparison | None = None
    unit: str = added_later("")
    higher: bool = added_later(True)
    proof: str = added_later("")
    alike: str = added_later("")
    reference: str = added_later("")
    against_baseline: AccuracyComparison | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    float_index: AccuracyComparison | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field


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
        holds: ratios to the baseline may be relied on: the machine was quiet, or only changed its speed, alike for
            both, and not by much.
        clock: 'modelled' times were measured nowhere; their intervals are those of what such times are off by.
        modelled: what the calls ask of a modelled device; None of measured times.
    """

    EARLIER: ClassVar = {"warmup_calls": None}
    batch: int
    samples: int
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
    holds: bool = added_later(False)
    modelled: ModelledCalls | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field

    @property
    def undrifted_p50_ms(self) -> Estimate:
        """The median without the machine's drift, as `metrics` has it."""
        p50 = self.p50_ms
        return replace(p50, value=p50.value / self.drift, low=p50.low / self.drift, high=p50.high / self.drift)


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
        calls: 0 for a point that lies between measured ones.
        quantiles_ms: at evenly spaced probabilities from 0 to 1, both ends included: the spread of single calls.
    """

    batch: int
    length: int
    calls: int
    p50_ms: Estimate
    mean_ms: float
    quantiles_ms: tuple[float, ...]

    @classmethod
    def exact(cls, batch: int, length: int, ms: float, *, calls: int = 1) -> CurvePoint:
        """Of calls that always take as long."""
        time = Estimate(value=ms, low=ms, high=ms)
        return cls(batch=batch, length=length, calls=calls, p50_ms=time, mean_ms=ms, quantiles_ms=(ms, ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What several sessions of one artifact do at once on a host's processors.

    Attributes:
        work: calls in one time, relative to one session alone; the interval is that of single moments, not of their
            mean: a load meets others.
        rounds: moments that were timed; `work` is their median.
    """

    sessions: int
    work: Estimate
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterIdle:
    """By how much a call is slower after its session did nothing for so long: caches were taken, a processor slept."""

    wait_ms: float
    slower_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """Latency against batch and length bin of one artifact, measured once; every service prediction rests on it.

    Attributes:
        points: sorted by length, then batch; every length has the same batches.
        stepped: a call of n rows costs what the smallest measured batch that holds n costs (fixed shapes), instead of
            lying between its neighbours.
        threads: threads that one call keeps busy on the host; 0 where a device computes.
        drift: the machine's speed while it was measured, as in `Latency.drift`, as far as both say so
            (`curve.with_agreed_drift`); a curve inside a `ServiceResult` has been divided by it.
        quiet: False when the machine disturbed the timing; `verdict` says how, in words.
        holds: as in `Latency`.
        speed_spread: relative standard deviation of the machine's speed between the moment of the curve and another
            one, such as that of a load.
        together: beside the curve, ascending; () where a device computes, or where it could not be told.
        after_idle: ascending waits; the points' own calls followed others without one.
        fit_error: of a surface, between whose points other lengths and batches are interpolated: the largest share by
            which it misses one of `checks`, points that were measured and left out.
        baseline: calls of the float baseline in the same rounds, as timed. None where there were none, or where the
            curve was taken from another candidate.
        baseline_first_ms: their median when this sweep first timed them among the calls of a curve.
        modelled: the timing model of modelled times, and what a call at each of `points` costs; None of measured ones,
            and once settings are chosen, which keep what they need of it (`ServiceResult.modelled`).
    """

    points: tuple[CurvePoint, ...]
    stepped: bool
    threads: int
    clock: Clock
    drift: float = 1.0
    quiet: bool = True
    verdict: str = ""
    holds: bool = added_later(False)
    speed_spread: float = added_later(0.0)
    together: tuple[Together, ...] = added_later(())
    after_idle: tuple[AfterIdle, ...] = added_later(())
    fit_error: float = added_later(0.0)
    checks: tuple[CurvePoint, ...] = added_later(())
    baseline: CurvePoint | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    baseline_first_ms: float = added_later(0.0)
    modelled: tuple[TimingModel, tuple[CallCosts, ...]] | None = added_later(None)

    @property
    def batches(self) -> tuple[int, ...]:
        return tuple(sorted({p.batch for p in self.points}))

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sorted({p.length for p in self.points}))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnIntervals:
    """Predicted figures with intervals that leave out what predictions of one machine have in common: its speed, its
    host's costs, the luck of a measurement. Candidates and settings are told apart by these."""

    throughput_per_s: Estimate
    p50_ms: Estimate
    p95_ms: Estimate
    p99_ms: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFigures:
    """A service under a load: simulated ('predicted'), or the real one under a load generator ('measured').

    Intervals of predicted figures are to hold what a load of this service measures (`prediction.simulation.intervals`),
    of measured ones what another such load would.

    Attributes:
        throughput_per_s: answered samples (each request carries one) per second.
        p50_ms, p95_ms, p99_ms: of requests as their client sees them, from the intended moment of sending.
        mean_batch: rows in a batch; `padding_share`: padded positions among all that were computed.
        worker_busy: share of the time that a worker computes.
        errors: answers that were no success; they are not in the latencies.
        host: the costs a prediction assumed; None for a measurement.
        clock: 'modelled' where the model's own times are.
        reliable: False says that the figure must not be relied on; `note` says why, in words.
        own: of a prediction; None of a measurement, and where intervals are of the simulation alone.
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
    own: OwnIntervals | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The best service settings of one artifact, and what they rest on.

    Attributes:
        best: None where no setting keeps the limit on P99; then `closest` came nearest.
        untuned: the same artifact at what its service runs today, or else at the first choices of the space.
        untuned_is_today: whether the space says what runs today.
        untuned_missed: in words, that `untuned` kept no limit on P99: nothing is a multiple of it; '' where it did.
        at_untuned_bins: the settings of `best` but for the bins, which are those of `untuned`; None where bins are no
            choice of the service, or kept no limit.
        tried: settings that were simulated.
        confirmed: `best` under real load; None where it was not, and then `note` may say why.
        modelled: what errors of the timing model would make of modelled times; None of measured ones.
    """

    EARLIER: ClassVar = {"simulated_s": None}

    curve: BatchCurve
    best: ServiceFigures | None
    closest: ServiceFigures
    untuned: ServiceFigures
    tried: int
    confirmed: ServiceFigures | None = None
    note: str = ""
    untuned_is_today: bool = added_later(False)
    at_untuned_bins: ServiceFigures | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    modelled: ModelledService | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    untuned_missed: str = added_later("")


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageLoad:
    """What a language model is asked to do, for modelled times.

    Attributes:
        batch: prompts at once.
        prompt: tokens of each.
        context: tokens in the cache of each while the next one is decoded.
    """

    batch: int = 1
    prompt: int = 512
    context: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageFigures:
    """Times of a language model on its card by a model of that card, measured nowhere, and its sizes.

    Attributes:
        prefill_ms: reading all prompts of the load; decode_ms: one token for each of its rows. Intervals are those of
            what is not known of the card, as far as the model says.
        prefill: what reading the prompts asks of the card; that of decoding stands in `Measurement.latency`.
        kv_bytes_per_token: cache of keys and values.
        weight_bytes: in the card's memory.
        basis: what the times rest on, in words.
    """

    load: LanguageLoad
    prefill_ms: Estimate
    decode_ms: Estimate
    prefill: ModelledCalls
    kv_bytes_per_token: int
    weight_bytes: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All that was measured before the evaluation ended; None where its stage was not reached.

    Attributes:
        peak_memory_bytes: what loading and running adds: resident memory of the process for a target that computes
            on the host, device memory for one beside it.
        device: None for a target that computes on the host.
        startup_s: opening every file of the artifact until the first answer.
        service: None where the experiment asks for no service.
        language: modelled figures of a language model; None of any other.
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
    language: LanguageFigures | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
