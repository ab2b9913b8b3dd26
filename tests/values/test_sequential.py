"""The errors that the gate states, counted over simulated releases at the ends of its zone; and what it says of one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.values.test_significance import f1, outcomes, sentences
from workbench.values.measurement import Estimate
from workbench.values.sequential import (
    EARLY,
    ERROR,
    STEP,
    Gate,
    certain_violation,
    decide,
    least_drop,
    look_schedule,
)
from workbench.values.significance import compare, score_interval

RIGHT = np.array([[1.0, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]])
"""Both right, lost, won."""
GATE = Gate.around(0.5)


def outcome(gate: Gate, value: float, low: float, high: float, **more: object) -> str:
    drop = Estimate(value=value, low=low, high=high)
    return decide(gate, drop, samples=1000, unit="pp", **more).outcome  # type: ignore[arg-type]


# --- early looks ------------------------------------------------------------------------------------------------


def test_looks_are_close_at_first_and_never_tiny() -> None:
    assert look_schedule(4000) == (250, 500, 750, 1000, 1500, 2000, 3000)
    assert [look_schedule(total) for total in (400, 64)] == [(75, 100, 150, 200, 300), ()]


@pytest.mark.parametrize(("loss", "share_won", "total"), [(1.0, 0.0, 2000), (1.0, 0.05, 2000), (0.25, 0.004, 8000)])
def test_who_is_at_the_lower_end_of_the_zone_is_stopped_at_most_as_often_as_is_said(
    loss: float, share_won: float, total: int
) -> None:
    generator, before = np.random.default_rng(5), 0
    lost = share_won + loss / 100
    seen, stopped = np.zeros((20_000, 3), dtype=np.int64), np.zeros(20_000, dtype=bool)
    for look in look_schedule(total):
        seen += generator.multinomial(look - before, [1 - lost - share_won, lost, share_won], size=len(seen))
        before = look
        stopped |= 100 * least_drop(RIGHT, seen) > loss

    assert stopped.mean() <= EARLY


def test_a_tagger_right_at_the_limit_is_stopped_at_most_as_often_as_alpha_says() -> None:
    many = sentences(np.random.default_rng(0), 1_000_000, lose=0.05, gain=0.1)
    limit_pp = 100 * (f1(many[0]) - f1(many[1]))
    stops = 0
    for seed in range(400):
        baseline, candidate = sentences(np.random.default_rng(seed), 400, lose=0.05, gain=0.1)
        stops += any(
            certain_violation(baseline[:n], candidate[:n], limit_pp=limit_pp, alpha=0.05) is not None
            for n in look_schedule(800)
        )

    assert stops / 400 <= 0.05


def test_the_certain_excess_is_a_lower_bound_that_grows_with_the_evidence_and_none_of_the_equal_or_better() -> None:
    excess = [certain_violation(*outcomes(n // 10, n // 100, n), limit_pp=0.5) or 0 for n in (400, 1000, 4000)]
    collapsed = certain_violation(*outcomes(30, 0, 64), limit_pp=0.5)

    assert 0 < excess[0] <= excess[1] <= excess[2] < 8.5
    assert collapsed is not None
    assert 15 < collapsed < 100 * 30 / 64
    for lost, won in [(0, 0), (0, 50), (10, 60), (40, 40)]:
        assert certain_violation(*outcomes(lost, won, 500), limit_pp=0.5) is None
    with pytest.raises(ValueError, match="paired and not empty"):
        certain_violation(np.ones(3, dtype=bool), np.ones(4, dtype=bool), limit_pp=0.5)


# --- the gate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "wrong"), [(0.25, "failed"), (0.75, "passed")])
@pytest.mark.parametrize("n", [2000, 16_000])
def test_at_either_end_of_the_zone_the_wrong_answer_is_rare_and_with_enough_samples_so_is_none(
    loss: float, wrong: str, n: int
) -> None:
    lost, won = (0.02 + loss / 100) / 2, (0.02 - loss / 100) / 2
    counts = np.random.default_rng(7).multinomial(n, [lost, won, 1 - lost - won], size=10_000)
    drops = (counts[:, 0] - counts[:, 1]) / n
    ends = score_interval(counts[:, 0], counts[:, 1], n)
    found = [outcome(GATE, *each) for each in 100 * np.stack([drops, *ends], axis=1)]

    assert found.count(wrong) / len(found) <= STEP + 0.005
    assert (found.count("undecided") / len(found) < 0.03) == (n > 2000)


def test_the_best_of_many_that_lose_too_much_does_not_pass() -> None:
    generator, passed = np.random.default_rng(8), 0
    for _ in range(1000):
        lost, won = generator.multinomial(4000, [0.0275, 0.02, 0.9525], size=20)[:, :2].T
        ends = zip((lost - won) / 4000, *score_interval(lost, won, 4000), strict=True)
        among = [Estimate(value=100 * v, low=100 * low, high=100 * high) for v, low, high in ends]
        found = [decide(GATE, one, samples=4000, unit="pp", among=among).outcome for one in among]
        passed += "passed" in found

    assert passed / 1000 <= ERROR + 0.02  # three standard errors of so many runs


figures = st.floats(-3, 3)
halves = st.floats(0, 3)


@given(figures, halves, halves, st.floats(-2, 2), st.floats(0, 2), st.floats(0, 2))
def test_no_outcome_contradicts_its_figure_and_a_wider_zone_undecides_nobody(
    value: float, down: float, up: float, limit: float, zone: float, wider: float
) -> None:
    ends = value, value - down, value + up
    gate = Gate(limit=limit, zone=zone)
    found = outcome(gate, *ends)

    assert found != ("failed" if value <= limit else "passed")
    assert found in ("undecided", outcome(replace(gate, zone=zone + wider), *ends))
    assert outcome(gate, *ends, among=[Estimate(value=value, low=ends[1], high=ends[2])] * 3) in (found, "undecided")


def test_what_a_gate_says() -> None:
    limit = 0.5
    compared = compare(*outcomes(6, 3, 1000))
    plain, asked = (decide(gate, compared.drop_pp, samples=1000, unit="pp") for gate in (GATE, Gate.around(limit, 0.1)))
    far = Estimate(value=3.0, low=2.0, high=4.0)
    equal = Estimate(value=0.0, low=0.0, high=0.0)

    assert str(plain) == (
        "gate at 0.5 ± 0.25 pp: undecided, 1000 samples are too few for false pass and false alarm at most 5 % each, "
        f"about {plain.needed} would do if the figure stays; its figure decides, wrongly in up to "
        f"{100 * plain.figure_error:.0f} %"
    )
    assert str(asked).endswith("undecided does not pass")
    assert (plain.keeps, asked.keeps) == (True, False)
    assert 2500 < (plain.needed or 0) < (asked.needed or 0)
    assert 0.15 < plain.figure_error < asked.figure_error < 0.5
    assert str(decide(GATE, far, samples=9, unit="dB")) == (
        "gate at 0.5 ± 0.25 dB: failed, false pass and false alarm at most 5 % each"
    )
    assert decide(Gate.around(0.0), equal, samples=9, unit="pp").outcome == "undecided"
    assert decide(Gate.around(0.5, 0.0), equal, samples=9, unit="pp").outcome == "passed"
    assert decide(Gate.around(0.0, 0.0), replace(far, value=0.0, low=-1), samples=9, unit="pp").needed is None
