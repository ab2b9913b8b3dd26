"""Which combination of a pipeline is recommended: by the strongest evidence, within both limits."""

from dataclasses import replace
from pathlib import Path

from tests.tiny_pipeline import PIPELINE, write_pipeline
from workbench.inputs.pipeline import read_pipeline
from workbench.report.pipeline import pipeline_lines
from workbench.search.joint import Joint, Loss, keeps_limits, recommended
from workbench.values.measurement import Estimate
from workbench.values.service import ServiceSettings

STAGES = ("find", "embed", "decide")


def exact(value: float, half: float = 0.0) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half)


def joint(
    name: str, per_s: float, *, loss: float | None = 0.0, held: float | None = None, loaded: float = 0.0
) -> Joint:
    def of(value: float | None) -> Loss:
        return Loss(values={"cer": 0.1}, loss=None if value is None else exact(value, 0.2), unit="pp", samples=200)

    return Joint(
        recipes=dict.fromkeys(STAGES, name * 8),
        settings=dict.fromkeys(STAGES, ServiceSettings()),
        predicted_per_s=per_s,
        predicted_p99_ms=50.0,
        searched=of(loss),
        held=None if held is None else of(held),
        measured_per_s=exact(loaded) if loaded else None,
        measured_p99_ms=exact(60.0) if loaded else None,
    )


def test_the_fastest_that_keeps_its_limits_is_recommended_and_a_load_counts_more_than_a_prediction(
    tmp_path: Path,
) -> None:
    limits = PIPELINE.replace("accuracy_loss_pp: 100", "accuracy_loss_pp: 1").replace("10000", "100")
    pipeline = read_pipeline(write_pipeline(tmp_path, pipeline=limits))
    baseline = joint("f", 100, loss=None, loaded=90)
    quick, lossy = joint("q", 200, loss=0.4), joint("l", 300, loss=1.5)
    found = [baseline, quick, lossy]

    assert [keeps_limits(pipeline, one, found) for one in found] == [True, True, False]
    assert recommended(pipeline, found) is baseline  # the others' speed is predicted
    confirmed = joint("q", 200, loss=0.4, held=0.3, loaded=180)
    assert recommended(pipeline, [baseline, confirmed, lossy]) is confirmed
    fallen = joint("q", 200, loss=0.4, held=2.0, loaded=180)
    assert recommended(pipeline, [baseline, fallen, lossy]) is baseline
    slow = replace(confirmed, measured_p99_ms=exact(120.0))
    assert recommended(pipeline, [baseline, slow]) is baseline
    assert recommended(pipeline, [baseline, replace(confirmed, by_stage=True)]) is baseline
    assert recommended(pipeline, [baseline, replace(confirmed, note="3 requests failed")]) is baseline


def test_its_lines_say_what_each_figure_is(tmp_path: Path) -> None:
    pipeline = read_pipeline(write_pipeline(tmp_path))
    baseline, best = joint("f", 100, loss=None, loaded=90), joint("q", 200, loss=0.4, held=0.3, loaded=180)
    found = [baseline, best, replace(joint("s", 150, held=0.1), by_stage=True), replace(joint("x", 170), note="no")]

    said = "\n".join(pipeline_lines("tiny", STAGES, found, best, {"q" * 8: "INT8"}, "loss", pipeline.gate, 100))

    assert "Recommended: 2.00x the requests/s of the float pipeline (measured under load)" in said
    assert "false pass and false alarm" in said
    assert "stage by stage" in said
    assert "predicted; loss held-out" in said
    assert "left out: xxxxxx xxxxxx xxxxxx: no" in said
    assert "find: qqqqqqqq  INT8; batch <= 1" in said
