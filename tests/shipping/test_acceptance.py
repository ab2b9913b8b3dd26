"""Criteria against published figures: what was not measured is not passed."""

from dataclasses import replace
from pathlib import Path

import pytest

from workbench.load import LoadResult, ServerProcesses
from workbench.load.text import result_lines
from workbench.shipping.acceptance import Verdict, judge, read_baseline
from workbench.shipping.acceptance_text import verdict_lines
from workbench.values.errors import ConfigError
from workbench.values.measurement import Estimate
from workbench.values.service import ServiceLoad

FILE = Path(__file__).parents[2] / "experiments" / "baselines" / "a100-triton.yaml"


def estimate(value: float, spread: float = 0.01) -> Estimate:
    return Estimate(value=value, low=value * (1 - spread), high=value * (1 + spread))


def result(concurrency: int, *, rate: float = 2000.0, p99_ms: float = 9.0, answered: int = 50_000) -> LoadResult:
    return LoadResult(
        url="http://127.0.0.1:8000",
        load=ServiceLoad(concurrency=concurrency),
        seed=0,
        began_at="2026-01-01T00:00:00+00:00",
        warmup_s=2.0,
        window_s=30.0,
        requests=answered,
        answered=answered,
        statuses={"200": answered},
        errors={},
        throughput_per_s=estimate(rate),
        p50_ms=estimate(4.0),
        p95_ms=estimate(6.0),
        p99_ms=estimate(p99_ms),
        mean_ms=4.2,
        longest_ms=20.0,
        late_p99_ms=None,
        per_second=(),
        client_share=0.1,
        event_loop="uvloop",
        interrupted=False,
        reliable=True,
        processes=ServerProcesses(
            processes=3,
            cores=1.5,
            resident_begin_bytes=1,
            resident_end_bytes=1,
            resident_peak_bytes=600_000_000,
            grown_bytes=0,
        ),
    )


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {c.name: c.outcome for c in verdict.criteria}


def test_the_shipped_baseline_has_the_published_figures() -> None:
    baseline = read_baseline(FILE)

    assert baseline.figures.throughput_per_s == 1803
    assert (baseline.figures.p50_ms, baseline.figures.p95_ms, baseline.figures.p99_ms) == (5.13, 5.94, 11.24)
    assert (baseline.figures.memory_gb, baseline.figures.power_w) == (0.75, 310)
    assert (baseline.latency_concurrency, baseline.latency_length, baseline.throughput_concurrency) == (1, 512, 100)


def test_limits_are_shares_of_the_published_figures() -> None:
    limits = {c.name: c.limit for c in judge(read_baseline(FILE)).criteria}

    assert limits["throughput"] == pytest.approx(0.8 * 1803)
    assert limits["P99"] == pytest.approx(1.2 * 11.24)
    assert limits["accuracy drop"] == 0.5
    assert limits["cosine of the float path"] == 0.999
    assert limits["P50"] is limits["memory"] is limits["power"] is None


@pytest.mark.parametrize(
    ("rate", "p99_ms", "drop", "cosine", "failed"),
    [
        (1443, 13.4, 0.5, 0.9991, set()),
        (1440, 13.4, 0.5, 0.9991, {"throughput"}),
        (1443, 13.6, 0.5, 0.9991, {"P99"}),
        (1443, 13.4, 0.51, 0.9991, {"accuracy drop"}),
        (1443, 13.4, 0.5, 0.998, {"cosine of the float path"}),
    ],
)
def test_each_limit_decides_by_its_value(
    rate: float, p99_ms: float, drop: float, cosine: float, failed: set[str]
) -> None:
    loads = [result(1, p99_ms=p99_ms), result(100, rate=rate)]

    verdict = judge(read_baseline(FILE), loads=loads, accuracy_drop_pp=estimate(drop, 0), cosine=cosine)

    assert {name for name, outcome in outcomes(verdict).items() if outcome == "failed"} == failed
    assert verdict.outcome == ("failed" if failed else "passed")


def test_nothing_measured_is_nothing_passed() -> None:
    verdict = judge(read_baseline(FILE))

    assert set(outcomes(verdict).values()) == {"not measured"}
    assert verdict.outcome == "not decided"


def test_one_missing_figure_keeps_a_verdict_from_passing() -> None:
    loads = [result(1), result(100)]

    verdict = judge(read_baseline(FILE), loads=loads, accuracy_drop_pp=estimate(0.1))

    assert outcomes(verdict)["cosine of the float path"] == "not measured"
    assert verdict.outcome == "not decided"


def test_a_load_under_other_conditions_is_no_figure() -> None:
    loads = [result(64), replace(result(1), load=ServiceLoad(arrivals="poisson", rate_per_s=100))]

    verdict = judge(read_baseline(FILE), loads=loads)

    found = {c.name: c for c in verdict.criteria}
    assert found["throughput"].outcome == found["P99"].outcome == "not measured"
    assert "--concurrency 100" in found["throughput"].note


@pytest.mark.parametrize(
    ("doubt", "says"),
    [
        ({"reliable": False, "notes": ("the load generator used 95% of a core",)}, "95% of a core"),
        ({"answered": 900}, "900 answers give no P99"),
    ],
    ids=["busy_client", "few_answers"],
)
def test_a_doubtful_load_passes_nothing(doubt: dict[str, object], says: str) -> None:
    verdict = judge(read_baseline(FILE), loads=[replace(result(1), **doubt), result(100)])  # type: ignore[arg-type]  # fields of the result

    (p99,) = [c for c in verdict.criteria if c.name == "P99"]
    assert p99.outcome == "not measured"
    assert says in p99.note


def test_an_emulators_times_are_no_figures() -> None:
    verdict = judge(
        read_baseline(FILE), loads=[result(1), result(100)], accuracy_drop_pp=estimate(0.1), power_w=200, emulated=True
    )

    found = outcomes(verdict)
    assert found["throughput"] == found["P99"] == found["memory"] == found["power"] == "not measured"
    assert found["accuracy drop"] == "passed"


def test_an_interval_that_crosses_the_limit_is_said() -> None:
    wide = Estimate(value=0.3, low=-0.1, high=0.7)

    (drop,) = [c for c in judge(read_baseline(FILE), accuracy_drop_pp=wide).criteria if c.name == "accuracy drop"]

    assert drop.outcome == "passed"
    assert "crosses the limit" in drop.note


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("  p99_ms: 11.24\n", "", "p99_at_most_percent"),
        ("p95_ms", "p95", "unknown key"),
        ("throughput_per_s: 1803", "throughput_per_s: -4", "less than 0"),
        ("source: >-", "origin: >-", "source"),
    ],
)
def test_a_wrong_baseline_file_is_refused_by_its_key(tmp_path: Path, before: str, after: str, says: str) -> None:
    text = FILE.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "b.yaml").write_text(text.replace(before, after), encoding="utf-8")

    with pytest.raises(ConfigError, match=says):
        read_baseline(tmp_path / "b.yaml")


def test_text_shows_every_criterion_with_its_outcome() -> None:
    loads = [result(1, p99_ms=20.0), result(100)]
    verdict = judge(read_baseline(FILE), loads=loads, accuracy_drop_pp=estimate(0.1))

    lines = verdict_lines(verdict)

    assert lines[-1] == "verdict: failed"
    for criterion in verdict.criteria:
        assert any(criterion.name in line and criterion.outcome in line for line in lines)
    assert any("P99" in line and "20 (19.8 to 20.2)" in line for line in result_lines(loads[0]))
