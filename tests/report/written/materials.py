"""Material of reports with chosen figures: everything there is, and as little as there can be."""

from dataclasses import replace
from pathlib import Path

from tests.evaluations import evaluation, service
from tests.report.summaries import held_out, judge
from tests.report.test_layers import GOOD
from workbench.load.result import LoadResult, ServerFigures
from workbench.prediction.capacity import CapacityPlan, Demand, MemberPlan
from workbench.report import Summary
from workbench.report.written.material import Material, QuantizedLayers
from workbench.shipping.acceptance.verdict import Criterion, Verdict
from workbench.study.compared import FLOAT, Comparison, DeviceFindings, FirstBad
from workbench.targets.inside import Remedy
from workbench.values.agreement import Agreement, Agreements, OutputAgreement
from workbench.values.device_use import DeviceUse, Spread
from workbench.values.measurement import AccuracyComparison, Estimate
from workbench.values.model import Model, TensorSpec
from workbench.values.results import Evaluation
from workbench.values.service import ServiceLoad, ServiceSettings

HOSTILE = "<script>alert(1)</script> | `x` $a_b$ * \x07 \ud800"
BASELINE = evaluation(served=service(300.0))
INT8 = evaluation(
    scheme="static", keep_float=2, drop_pp=0.2, accuracy=0.948, p50_ms=2.0, speedup=2.0, served=service(700.0)
)


def emulated(found: Evaluation) -> Evaluation:
    latency = found.measurement.latency
    assert latency is not None
    measurement = replace(found.measurement, latency=replace(latency, clock="modelled"))
    return replace(found, measurement=measurement, toolchain=replace(found.toolchain, emulated=True))


def summary_of(*evaluations: Evaluation, confirmed: tuple[Evaluation, ...] = ()) -> Summary:
    baseline, *found = evaluations
    limits = {"accuracy_loss_pp": 0.5, "service_p99_ms": 90.0}
    objectives = ("service_throughput_per_s", "accuracy")
    return judge(*found, baseline=baseline, confirmed=confirmed, objectives=objectives, limits=limits)


def least(*, is_emulated: bool = False) -> Material:
    """A sweep of a baseline and one INT8 candidate that was not confirmed, and no other document."""
    baseline, chosen = (emulated(e) if is_emulated else e for e in (BASELINE, INT8))
    return Material(
        name="loans",
        about="does it keep its accuracy?",
        task="classification",
        source="experiments/loans.yaml",
        is_bundle=False,
        created_at="2026-03-01T14:05:00+00:00",
        workbench="0.1.0",
        chosen=chosen,
        confirmed=None,
        baseline=baseline,
        baseline_confirmed=None,
        model=Model(
            path=Path("model.onnx"),
            sha256="ab" * 32,
            size_bytes=14_000_000,
            opset=17,
            inputs=(TensorSpec(name="ids", dtype="int64", shape=("batch", None)),),
            outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 12)),),
        ),
        data={"calibration": ("c" * 64, None), "validation": ("d" * 64, 1000), "holdout": ("e" * 64, None)},
        summary=summary_of(baseline, chosen),
    )


def most() -> Material:
    """The same confirmed, with every document there is."""
    confirmed = held_out(INT8)
    return replace(
        least(),
        confirmed=confirmed,
        baseline_confirmed=held_out(BASELINE),
        summary=summary_of(BASELINE, INT8, confirmed=(confirmed, held_out(BASELINE))),
        settings=ServiceSettings(max_batch_size=8, batch_timeout_ms=2.0, workers=2),
        layers=QuantizedLayers(by="native", kinds={"MatMul": 24, "Gemm": 2}, float_layers=("/l0/MatMul", "/l1/MatMul")),
        verdict=VERDICT,
        agreement=AGREEMENT,
        loads=(LOAD,),
        capacity=capacity(),
        command="workbench report experiments/tiny.yaml --verdict load/verdict.json --to report.docx",
    )


def estimate(value: float, reach: float = 0.0) -> Estimate:
    return Estimate(value=value, low=value - reach, high=value + reach)


def criterion(key: str, figure: Estimate | None, limit: float | None, outcome: str, note: str = "") -> Criterion:
    bound = "at least" if key == "throughput" else "at most"
    return Criterion(
        key=key,  # type: ignore[arg-type]  # one of its own
        name=key,
        unit="requests/s" if key == "throughput" else "ms",
        figure=figure,
        published=1000.0 if key == "throughput" else 10.0,
        bound=bound,  # type: ignore[arg-type]  # one of its own
        limit=limit,
        outcome=outcome,  # type: ignore[arg-type]  # the same
        note=note,
    )


VERDICT = Verdict(
    baseline="A100 + Triton",
    source="stated by those who move",
    criteria=(
        criterion("throughput", estimate(1659.0, 12.0), 800.0, "passed", "100 clients"),
        criterion("p99", estimate(14.0, 1.0), 12.0, "failed", "1 client, length 512"),
        criterion("p50", None, None, "not measured", "needs a load with --concurrency 1 --length 512"),
    ),
)


def agreement(path: str, *, reference: str = "float32", shape: str = "", drop: float | None = None) -> Agreement:
    output = OutputAgreement(
        output="logits", samples=400, elements=4800, worst_cosine=0.99912, mean_cosine=0.99997, max_abs=4e-4, mae=3e-5
    )
    compared = None
    if drop is not None:
        compared = AccuracyComparison(drop_pp=estimate(drop, 0.4), p_value=0.6, test="McNemar exact")
    return Agreement(
        path=path,  # type: ignore[arg-type]  # one of its own
        reference=reference,  # type: ignore[arg-type]  # the same
        outputs=(output,),
        samples=400,
        shape=shape,
        top1=estimate(0.9975),
        accuracy={"accuracy": (0.948, 0.95)},
        drop=compared,
    )


AGREEMENT = Agreements(
    candidate_id=INT8.candidate.id,
    data="400 samples of validation of loans.yaml",
    paths=(
        agreement("float16 compiled", drop=0.05),
        agreement("served", drop=0.25),
        agreement("served", reference="float16 compiled", drop=0.2),
        agreement("served", shape="batch 8, length 64"),
    ),
    missing={"pytorch": "no checkpoint is known"},
)

SERVER = ServerFigures(
    batches=6000,
    mean_batch=8.3,
    padding_share=0.2,
    queue_ms=3.0,
    model_ms=9.0,
    worker_busy=0.8,
    batch_rows={"8": 6000},
    bin_rows={"64": 50_000},
    errors={},
)
LOAD = LoadResult(
    url="http://127.0.0.1:1",
    load=ServiceLoad(concurrency=100),
    seed=0,
    began_at="2026-03-01T12:00:00+00:00",
    warmup_s=1.0,
    window_s=30.0,
    requests=50_000,
    answered=50_000,
    statuses={"200": 50_000},
    errors={},
    throughput_per_s=estimate(1659.0, 12.0),
    p50_ms=estimate(58.0, 1.0),
    p95_ms=estimate(71.0, 1.0),
    p99_ms=estimate(80.0, 2.0),
    mean_ms=58.0,
    longest_ms=120.0,
    late_p99_ms=None,
    per_second=(1659,) * 30,
    client_share=0.3,
    event_loop="uvloop",
    interrupted=False,
    reliable=True,
    device=(
        DeviceUse(
            card="0",
            source="npu-smi",
            memory_bytes=Spread(median=1.5e9, peak=1.6e9, lowest=1.5e9, samples=30),
            power_w=Spread(median=295.0, peak=301.0, lowest=280.0, samples=30),
            utilization_percent=None,
            temperature_c=None,
        ),
    ),
    server=SERVER,
)


def member(found: Evaluation, cards: int, *, baseline: bool) -> MemberPlan:
    served = found.measurement.service
    assert served is not None
    return MemberPlan(
        candidate_id=found.candidate.id,
        what="a candidate",
        baseline=baseline,
        accuracy=0.95,
        settings=ServiceSettings(max_batch_size=8),
        highest=served.best,
        lowest_p99_ms=20.0,
        limited_by="the model",
        cards=cards,
        servers=cards // 8,
        cards_to_lose_one=cards + 1,
    )


def capacity() -> CapacityPlan:
    slow, nowhere = member(BASELINE, 450, baseline=True), replace(member(INT8, 90, baseline=False), highest=None)
    return CapacityPlan(
        demand=Demand(rate_per_s=5000.0, p99_ms=100.0, price_per_hour=10.0),
        unit="card",
        members=(member(INT8, 90, baseline=False), slow, replace(nowhere, candidate_id="f" * 64, cards=None)),
        assumptions=(),
        emulated=False,
    )


BAD = FirstBad(
    operator="layer_0/softmax",
    op_type="SoftmaxV2",
    nodes=("/l0/Softmax",),
    types="float16",
    tensor="/l0/Softmax_output_0",
    cause="range",
    magnitude=70_000.0,
    not_finite=12,
    relative_error=0.4,
    mends=(Remedy(setting="compile.keep_dtype", lines=("layer_0/softmax",), what="keeps its types"),),
    scales=(),
    files=("a.npy",),
)


def compared(bad: FirstBad | None) -> Comparison:
    """A comparison of one tensor with what ran on a device."""
    row = replace(GOOD, tensor="logits", node="/classifier", op_type="Gemm", is_output=True)
    findings = DeviceFindings(about="batch 1, length 64", emulated=False, operators=31, folder="dump", first_bad=bad)
    return Comparison(
        a="float model",
        b="compiled files",
        data="8 samples",
        batches=1,
        limits=FLOAT,
        rows=(row,),
        only_in_a=0,
        device=findings,
    )
