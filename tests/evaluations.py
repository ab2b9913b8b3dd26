"""Evaluations with chosen numbers, for tests of what comes after measuring."""

from workbench.values.artifact import Toolchain
from workbench.values.candidate import Candidate, Quantization, Serving
from workbench.values.measurement import (
    Accuracy,
    AccuracyComparison,
    BatchCurve,
    CurvePoint,
    Estimate,
    Latency,
    Measurement,
    ServiceFigures,
    ServiceResult,
)
from workbench.values.results import Evaluation, Failure, StageTiming, Stop
from workbench.values.service import ServiceLoad, ServiceSettings

TOOLCHAIN = Toolchain(target="onnxruntime", components={"onnxruntime": "1.31.1"}, device="a CPU", features=("avx2",))


def candidate(*, threads: int = 1, scheme: str = "none", keep_float: int = 0) -> Candidate:
    settings = {
        "none": Quantization(),
        "dynamic": Quantization(scheme="dynamic", weight_granularity="channel"),
        "static": Quantization(
            scheme="static",
            algorithm="minmax",
            activation_symmetric=False,
            weight_granularity="channel",
            attention_matmul=False,
            keep_float=keep_float,
        ),
    }
    return Candidate(target="onnxruntime", quantization=settings[scheme], serving=Serving(intra_op_threads=threads))


def latency(p50_ms: float, speedup: float, *, drift: float = 1.0, p99_ms: float | None = None) -> Latency:
    return Latency(
        batch=1,
        samples=1000,
        p50_ms=Estimate(value=p50_ms, low=p50_ms * 0.98, high=p50_ms * 1.02),
        p95_ms=p50_ms * 1.2,
        p99_ms=p50_ms * 1.5 if p99_ms is None else p99_ms,
        mean_ms=p50_ms,
        throughput_per_s=1000 / p50_ms,
        speedup=Estimate(value=speedup, low=speedup * 0.98, high=speedup * 1.02),
        baseline_p50_ms=p50_ms * speedup,
        quiet=True,
        verdict="quiet",
        drift=drift,
    )


def estimate(value: float, share: float = 0.02) -> Estimate:
    return Estimate(value=value, low=value * (1 - share), high=value * (1 + share))


def figures(per_s: float, p99_ms: float, *, measured: bool = False, batch: int = 8) -> ServiceFigures:
    return ServiceFigures(
        kind="measured" if measured else "predicted",
        settings=ServiceSettings(max_batch_size=batch, batch_timeout_ms=2.0 if batch > 1 else 0.0, workers=2),
        load=ServiceLoad(concurrency=100),
        requests=20_000,
        throughput_per_s=estimate(per_s),
        p50_ms=estimate(p99_ms / 2),
        p95_ms=estimate(p99_ms * 0.9),
        p99_ms=estimate(p99_ms),
        mean_batch=batch * 0.75,
        padding_share=0.2,
    )


def service(
    per_s: float = 500.0,
    *,
    p99_ms: float = 40.0,
    untuned_per_s: float = 300.0,
    measured_per_s: float | None = None,
    keeps: bool = True,
) -> ServiceResult:
    point = CurvePoint(batch=1, length=16, calls=20, p50_ms=estimate(2.0), mean_ms=2.0, quantiles_ms=(1.9, 2.0, 2.4))
    best = figures(per_s, p99_ms)
    return ServiceResult(
        curve=BatchCurve(points=(point,), stepped=False, threads=1, clock="host"),
        best=best if keeps else None,
        closest=best,
        untuned=figures(untuned_per_s, p99_ms * 2, batch=1),
        tried=40,
        confirmed=None if measured_per_s is None else figures(measured_per_s, p99_ms * 1.1, measured=True),
    )


def evaluation(
    *,
    threads: int = 1,
    scheme: str = "none",
    keep_float: int = 0,
    accuracy: float = 0.95,
    drop_pp: float | None = None,
    p50_ms: float = 4.0,
    speedup: float = 1.0,
    drift: float = 1.0,
    started_at: str = "2026-01-01T00:00:00+00:00",
    stop: Stop | None = None,
    failure: Failure | None = None,
    served: ServiceResult | None = None,
) -> Evaluation:
    comparison = None
    if drop_pp is not None:
        drop = Estimate(value=drop_pp, low=drop_pp - 0.3, high=drop_pp + 0.3)
        comparison = AccuracyComparison(drop_pp=drop, p_value=0.5, test="McNemar exact")
    measurement = Measurement(
        accuracy=Accuracy(
            primary="accuracy",
            values={"accuracy": accuracy, "macro_f1": accuracy - 0.01},
            samples=1000,
            split="validation",
            comparison=comparison,
        ),
        latency=latency(p50_ms, speedup, drift=drift),
        size_bytes=20_000_000,
        peak_memory_bytes=60_000_000,
        int8_ops=0 if scheme == "none" else 25,
        float_matmuls_left=33 if scheme == "none" else 8,
        startup_s=0.4,
        service=served,
    )
    return Evaluation(
        candidate=candidate(threads=threads, scheme=scheme, keep_float=keep_float),
        status="failed" if failure else "stopped" if stop else "complete",
        stage_reached="latency_full",
        split="validation",
        measurement=Measurement() if failure else measurement,
        stages=(StageTiming(stage="latency_full", seconds=3.0),),
        toolchain=TOOLCHAIN,
        started_at=started_at,
        failure=failure,
        stop=stop,
    )
