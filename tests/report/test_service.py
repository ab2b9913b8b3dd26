"""The service in the report."""

from collections.abc import Sequence
from dataclasses import replace

from tests.evaluations import evaluation, figures, service
from tests.report.summaries import held_out, judge
from workbench.report import lines
from workbench.report.alike import Alike
from workbench.report.page import pareto_html
from workbench.report.summary import Summary
from workbench.report.table import service_lines
from workbench.values.measurement import Estimate, OwnIntervals, ServiceResult, Together
from workbench.values.metrics import metrics
from workbench.values.objectives import Objective
from workbench.values.results import Evaluation
from workbench.values.service import HostCosts

OBJECTIVES = (Objective(metric="service_throughput_per_s"), Objective(metric="accuracy"))


def summary_of(evaluations: Sequence[Evaluation], *confirmed: Evaluation) -> Summary:
    objectives = ("service_throughput_per_s", "accuracy")
    baseline, *others = evaluations
    return judge(
        *others, baseline=baseline, confirmed=confirmed, objectives=objectives, limits={"service_p99_ms": 60.0}
    )


def plain(served: ServiceResult) -> Evaluation:
    return evaluation(served=served)


def quantized(served: ServiceResult, keep_float: int = 0, accuracy: float = 0.95) -> Evaluation:
    return evaluation(
        scheme="static",
        keep_float=keep_float,
        accuracy=accuracy,
        drop_pp=0.0,
        speedup=1.5,
        p50_ms=2.7,
        served=served,
    )


def test_the_table_shows_predicted_measured_and_untuned_or_todays_side_by_side() -> None:
    best, declared = quantized(service(800)), quantized(replace(service(800), untuned_is_today=True))
    text = lines(summary_of([plain(service(500)), best], held_out(best, service(800, measured_per_s=777))))
    today = lines(summary_of([plain(replace(service(500), untuned_is_today=True)), declared]))

    assert "Service under 100 clients, closed loop:" in text
    assert "which has no `today:`" in " ".join(text.split())
    rows, others = ([line.split()[:5] for line in each.splitlines()] for each in (text, today))
    assert ["predicted", "8", "2", "2", "800"] in rows
    assert ["measured", "8", "2", "2", "777"] in rows
    assert ["untuned", "1", "0", "2", "300"] in rows
    assert ["today", "1", "0", "2", "300"] in others


def test_there_is_no_factor_over_what_missed_its_limit() -> None:
    missed = "misses the limit on P99 of 13.488 ms: 18.1 ms under 5 requests/s, Poisson"
    slow = replace(service(500, untuned_per_s=5), untuned_missed=missed, untuned_is_today=True)
    best = quantized(replace(service(800, untuned_per_s=5), untuned_missed=missed, untuned_is_today=True))
    found = summary_of([plain(slow), best])

    said = " ".join(" ".join(line for line, _ in service_lines(found)).split())
    assert said.count(f"{missed}; no factor over it is given") == 2
    assert "160.00x" not in said
    assert "service_gain" not in metrics(best)


def test_a_candidate_whose_service_keeps_no_limit_is_not_feasible_and_says_by_how_much() -> None:
    slow = quantized(service(900, p99_ms=90.0, keeps=False))
    found = summary_of([plain(service(500)), slow])

    assert "service_throughput_per_s" not in metrics(slow)
    assert metrics(slow)["service_p99_ms"] == 90.0
    assert not found.is_feasible(slow)
    assert found.recommended is not None
    assert found.recommended.candidate_id == found.baseline_id


def test_wide_intervals_for_a_measurement_do_not_make_candidates_equal_that_share_its_causes() -> None:
    alike = Alike(OBJECTIVES, lambda *_: None, "")

    def promised(per_s: float, keep_float: int, rounds: int | None = None) -> Evaluation:
        served = service(per_s)
        assert served.best is not None
        best, rate = served.best, served.best.throughput_per_s
        own = OwnIntervals(throughput_per_s=rate, p50_ms=best.p50_ms, p95_ms=best.p95_ms, p99_ms=best.p99_ms)
        wide = replace(rate, low=0.7 * rate.value, high=1.3 * rate.value)
        together = Together(sessions=2, work=Estimate(value=1.6, low=1.2, high=2.0), rounds=rounds or 1)
        curve = replace(served.curve, together=() if rounds is None else (together,))
        return quantized(replace(served, curve=curve, best=replace(best, throughput_per_s=wide, own=own)), keep_float)

    assert not alike.in_metric(promised(800, 0), promised(950, 1), "service_throughput_per_s")
    assert not alike.in_metric(promised(800, 0, rounds=100), promised(950, 1, rounds=100), "service_throughput_per_s")
    # one moment of two sessions at once says little of either candidate
    assert alike.in_metric(promised(800, 0, rounds=1), promised(950, 1, rounds=1), "service_throughput_per_s")


def test_an_unreliable_figure_says_so_in_its_row_and_so_does_what_was_not_measured() -> None:
    doubtful = replace(figures(700, 40.0, measured=True), reliable=False, note="the client was at its limit")
    best = quantized(service(800))
    loaded = summary_of([plain(service(500)), best], held_out(best, replace(service(800), confirmed=doubtful)))
    without = summary_of([plain(service(500)), quantized(replace(service(800), note="the device is emulated"))])

    assert "UNRELIABLE: the client was at its limit" in lines(loaded)
    assert "not measured: the device is emulated" in lines(without)
    assert service_lines(judge()) == []


def test_the_page_says_how_well_its_axis_is_known_and_which_column_was_measured() -> None:
    best = quantized(service(800))
    page = pareto_html(summary_of([plain(service(500)), best], held_out(best, service(800, measured_per_s=777))))

    assert "service_throughput_per_s (more is better, measured held-out or predicted)" in page
    heads = ["served /s,<br>predicted", "served /s,<br>measured", "P99 ms,<br>predicted", "P99 ms,<br>measured"]
    assert [page.find(head) > 0 for head in heads] == [True] * 4


def test_of_candidates_that_serve_alike_the_one_whose_calls_are_measured_faster_is_recommended() -> None:
    """Two predictions that cannot be told apart say nothing against a measurement."""
    slow, fast = plain(service(500)), quantized(service(502))

    summary = summary_of([slow, fast])

    assert summary.recommended is not None
    assert summary.recommended.candidate_id == fast.candidate.id
    assert summary.recommended.among == ()


def test_what_holds_the_service_back_and_a_slower_call_are_said_beside_the_recommendation() -> None:
    host = HostCosts(request_ms=1.0, origin="assumed")

    def judged(rate: float, speedup: float = 1.5) -> str:
        found = quantized(service(rate))
        measured = found.measurement
        assert measured.service is not None
        assert measured.service.best is not None
        assert measured.latency is not None
        best = replace(measured.service.best, host=host, worker_busy=0.6)
        slow = replace(measured.latency, speedup=Estimate(value=speedup, low=speedup - 0.05, high=speedup + 0.05))
        measured = replace(measured, service=replace(measured.service, best=best), latency=slow)
        recommended = summary_of([plain(service(100)), replace(found, measurement=measured)]).recommended
        assert recommended is not None
        return " ".join(recommended.warnings)

    assert "front end, not the model, limits what is served: busy 90% of the time, workers 60%" in judged(900)
    assert "front end" not in judged(500)
    assert "slower" not in judged(500)
    words = "slower than the float baseline's: 0.70x [0.65, 0.75]. It leads in service_throughput_per_s"
    assert words in judged(500, 0.7)
