"""A speed-up taken apart by measured neighbours: the product is the total, and what was not measured is joint."""

from dataclasses import replace

import pytest

from tests.evaluations import candidate, evaluation, latency
from tests.report.summaries import judge
from workbench.evaluation.run_notes import Neighbour
from workbench.report import lines, to_json
from workbench.report.factors import missing_between, taken_apart
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.candidate import Candidate, Serving
from workbench.values.results import Evaluation
from workbench.values.setting_groups import GROUPS, between, differing_groups

BINS = (16, 32)


def at(speedup: float, *, bins: tuple[int, ...] | None = None, scheme: str = "none", threads: int = 1) -> Evaluation:
    found = evaluation(scheme=scheme, drop_pp=0.1, p50_ms=4.0 / speedup, speedup=speedup)
    serving = Serving(intra_op_threads=threads, sequence_bins=bins)
    return replace(found, candidate=replace(found.candidate, serving=serving))


def test_factors_of_measured_neighbours_multiply_to_the_total_and_carry_intervals() -> None:
    found = taken_apart(judge(at(6.0, bins=BINS, scheme="static"), at(3.0, bins=BINS), at(1.8, scheme="static")))

    assert found is not None
    assert [(f.names, pytest.approx(f.gain.value)) for f in found.factors] == [(("lengths",), 3.0), (("INT8",), 2.0)]
    assert all(f.gain.low < f.gain.value < f.gain.high for f in found.factors)
    assert found.total.value == pytest.approx(6.0)
    assert found.words().startswith(
        "6.00x [5.88, 6.12] = 3.00x [2.94, 3.06] by lengths \N{MULTIPLICATION SIGN} 2.00x ["
    )


def test_what_was_not_measured_apart_is_one_factor_until_it_is_timed() -> None:
    fast = at(6.0, bins=BINS, scheme="static", threads=2)
    summary = judge(fast, at(1.5, threads=2))

    found = taken_apart(summary)
    missing = missing_between(summary)
    (between_them,) = [c for c in missing if c.serving.sequence_bins == BINS]
    timed = Neighbour(candidate=between_them, latency=latency(1.0, 4.5))
    after = taken_apart(judge(fast, at(1.5, threads=2), neighbours=(timed,)))

    assert found is not None
    assert [f.names for f in found.factors] == [("threads",), ("lengths", "INT8")]
    assert "by lengths and INT8 together" in found.sentence()
    assert "not measured apart" in found.sentence()
    assert len(missing) == 1
    assert after is not None
    assert [(f.names, pytest.approx(f.gain.value)) for f in after.factors] == [
        (("threads",), 1.5),
        (("lengths",), 3.0),
        (("INT8",), pytest.approx(6.0 / 4.5)),
    ]


def test_one_group_says_all_of_it_and_a_recommended_baseline_has_nothing_to_take_apart() -> None:
    alone = judge(at(2.0, scheme="static"))

    text = " ".join(lines(alone).split())
    assert "All of its 2.00x [1.96, 2.04] on the validation split comes from INT8." in text
    assert to_json(alone)["factors"]["factors"][0]["groups"] == ["precision"]
    assert missing_between(alone) == ()
    assert taken_apart(judge()) is None
    assert to_json(judge())["factors"] is None


def test_candidates_in_between_take_whole_groups_and_engines_keep_their_own_compiler() -> None:
    a, b = candidate(threads=2), at(2.0, bins=BINS, scheme="static").candidate
    other = Candidate(target="openvino", compile=OpenVinoCompile(performance_hint="throughput"), serving=a.serving)

    assert differing_groups(a, b) == ("lengths", "precision", "threads")
    assert between(a, b, ()) == a
    assert between(a, b, GROUPS) == b
    half = between(a, b, ("precision",))
    assert half is not None
    assert (half.quantization, half.serving) == (b.quantization, a.serving)
    assert differing_groups(a, other) == ("engine",)
    assert between(a, other, ("engine",)) == other
