"""What each change brings a fleet: batch curves made by hand, so that a step's rate follows from one call's time."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.prediction.fleets import HOST, served
from tests.prediction.simulation.services import NO_LENGTHS
from workbench.prediction.fleet_cost import Capacity, fleet_costs, priced, read_capacity
from workbench.prediction.highest_rate import one_card
from workbench.prediction.prices import Hardware, Prices
from workbench.prediction.what_if import Fleet, FleetPlan, PriorityClass, Step, Timed, fleet_plan, what_ifs
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.values.candidate import Candidate, Precision, Quantization
from workbench.values.errors import ConfigError
from workbench.values.service import HostCosts, ServiceChoices, ServiceSettings

TODAY = ServiceSettings(max_batch_size=1)
CHOICES = ServiceChoices(max_batch_size=(1, 8), today=TODAY)
INT8 = Quantization(
    scheme="static",
    algorithm="minmax",
    activation_symmetric=False,
    weight_granularity="tensor",
    attention_matmul=False,
    keep_float=0,
)
BATCHES = (1, 8)


def on_card(*bins: int, quantized: bool = False) -> Candidate:
    return Candidate(
        target=ASCEND,
        precision=Precision(mode="force_fp16"),
        quantization=INT8 if quantized else Quantization(),
        compile=AscendCompile(sequence_bins=bins, batches=BATCHES),
    )


BASELINE, BINS, CHOSEN = on_card(128), on_card(64, 128), on_card(64, 128, quantized=True)


def timed(candidate: Candidate, call_ms: dict[int, float], *, host: HostCosts = HOST) -> Timed:
    evaluation = replace(served(call_ms, host=host), candidate=candidate)
    return Timed(evaluation=evaluation, card=one_card(evaluation, 200.0, NO_LENGTHS, (), 0, None), choices=CHOICES)


def known(*, bins: bool = True, host: HostCosts = HOST) -> dict[str, Timed]:
    found = {
        BASELINE.id: timed(BASELINE, {1: 10.0, 8: 40.0}, host=host),
        CHOSEN.id: timed(CHOSEN, {1: 2.5, 8: 10.0}, host=host),
    }
    return found | ({BINS.id: timed(BINS, {1: 5.0, 8: 20.0}, host=host)} if bins else {})


def test_each_what_if_rests_on_the_candidate_that_has_it_and_is_on_top_of_those_before() -> None:
    today, bins, batching, model, front_ends = what_ifs(BASELINE, CHOSEN, known())

    assert [s.what_if for s in (today, bins, batching, model, front_ends)] == [
        "today",
        "bins",
        "batching",
        "model",
        "front ends",
    ]
    assert [s.candidate_id for s in (today, bins, batching, model)] == [BASELINE.id, BINS.id, BINS.id, CHOSEN.id]
    assert today.settings == bins.settings == TODAY
    assert batching.settings.max_batch_size == 8
    rates = [s.rate_per_s or 0.0 for s in (today, bins, batching, model)]
    assert rates[1] / rates[0] == pytest.approx(2.0, rel=0.1)  # half the time of a call
    assert rates[3] / rates[2] == pytest.approx(2.0, rel=0.1)
    assert rates == sorted(rates)
    assert (model.groups, model.quantized) == (("precision",), True)
    assert {s.evidence for s in (today, bins, batching, model)} == {"predicted"}


def test_a_step_whose_candidate_was_not_timed_says_so_and_is_held_by_the_next() -> None:
    _, bins, batching, model, _ = what_ifs(BASELINE, CHOSEN, known(bins=False))

    assert (bins.finding, batching.finding) == ("not timed", "not timed")
    assert bins.rate_per_s is None
    assert bins.candidate_id == BINS.id
    assert model.held == ("bins", "batching")


def test_what_several_front_ends_cost_is_never_assumed() -> None:
    unknown = what_ifs(BASELINE, CHOSEN, known())[-1]
    slow = replace(HOST, request_ms=4.0, front_end_ms=4.0, passed_row_ms=0.05)
    found = what_ifs(BASELINE, CHOSEN, known(host=slow))[-1]

    assert (unknown.finding, unknown.rate_per_s) == ("not measured", None)
    assert found.front_ends > 1
    assert found.finding == ""


def test_a_baseline_that_is_chosen_leaves_its_service_alone_to_be_tuned() -> None:
    steps = what_ifs(BASELINE, BASELINE, known())

    assert [s.finding for s in steps] == ["", "already so", "", "not chosen", "not measured"]


def test_modelled_times_give_modelled_steps_and_a_limit_that_nothing_keeps_is_said() -> None:
    service = {
        i: replace(one.card.service, curve=replace(one.card.service.curve, clock="modelled"))
        for i, one in known().items()
    }
    modelled = {i: replace(one, card=replace(one.card, service=service[i])) for i, one in known().items()}
    assert what_ifs(BASELINE, CHOSEN, modelled)[0].evidence == "modelled"

    steps = what_ifs(BASELINE, CHOSEN, {i: replace(o, card=replace(o.card, p99_ms=1.0)) for i, o in known().items()})
    assert [s.finding for s in steps[:4]] == ["keeps no limit"] * 4
    with pytest.raises(ConfigError, match="no rate keeps a P99"):
        sized(steps, Fleet(cards=10))


# --- sizes: arithmetic on rates --------------------------------------------------------------------------------------


def made(what_if: str, rate: float | None, power_w: float | None = None) -> Step:
    return Step(
        what_if=what_if,
        candidate_id="c" * 64,
        settings=ServiceSettings(),
        rate_per_s=rate,
        finding="" if rate else "not timed",
        evidence="predicted",
        power_w=power_w,
    )


def sized(steps: Sequence[Step], fleet: Fleet, **changes: Any) -> FleetPlan:
    return fleet_plan(steps, fleet, p99_ms=50.0, unit="card", emulated=False, **changes)


def test_cards_are_in_proportion_to_todays_or_follow_from_a_rate_and_the_headroom() -> None:
    plan = sized([made("today", 100.0), made("model", 250.0)], Fleet(cards=450, streams_per_card=6))

    assert plan.basis == "today"
    assert [(s.cards, s.servers, s.streams_per_card) for s in plan.steps] == [(450, 57, 6.0), (180, 23, 15.0)]
    assert plan.steps[1].gain == 2.5
    assert plan.steps[1].cards_with_spare_server == 188
    plan = sized([made("today", 100.0)], Fleet(), rate_per_s=1000.0, headroom=0.3)
    assert [(s.cards, s.servers) for s in plan.steps] == [(13, 2)]
    assert plan.steps[0].cards_with_spare_server == 18  # ten carry the mean, and eight may be lost


def test_the_first_classes_are_served_whole_before_the_next_and_their_shares_make_a_whole() -> None:
    classes = [PriorityClass(name="live", share=0.6), PriorityClass(name="batch", share=0.4)]
    plan = sized([made("today", 100.0)], Fleet(cards=16), classes=classes)

    served_then = plan.steps[0].served_with_lost_server
    assert served_then["live"] == pytest.approx(8 / 9.6)
    assert served_then["batch"] == 0
    for shares, message in (
        ([("a", 0.5), ("b", 0.4)], "do not add up"),
        ([("a", 0.5), ("a", 0.5)], "stands twice"),
        ([("a", 1.5), ("b", -0.5)], "do not add up"),
    ):
        with pytest.raises(ConfigError, match=message):
            sized([made("today", 1.0)], Fleet(cards=1), classes=[PriorityClass(name=n, share=s) for n, s in shares])


def test_nothing_to_be_in_proportion_to_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither a rate nor today's cards"):
        sized([made("today", 1.0)], Fleet())
    with pytest.raises(ConfigError, match="not positive"):
        Fleet(cards=0)


# --- and what it costs -----------------------------------------------------------------------------------------------

PRICES = Prices(
    currency="CNY",
    source="a test",
    card=Hardware(rent_per_month=10.0),
    server=Hardware(rent_per_month=100.0, power_w=500.0),
    energy_per_kwh=1.0,
)


def plan_of_two(power_w: float | None = 300.0) -> FleetPlan:
    steps = [made("today", 100.0, power_w), made("bins", None), made("model", 200.0, power_w)]
    return sized(steps, Fleet(cards=16), rate_per_s=1600.0)


def test_every_step_with_cards_has_its_cost_and_what_runs_today_comes_first() -> None:
    costs = fleet_costs(plan_of_two(), PRICES, None)

    assert [(c.what_if, c.cards, c.power_basis) for c in costs] == [
        ("as run", 16, "device"),
        ("today", 16, "device"),
        ("model", 8, "device"),
    ]
    last = costs[-1].monthly
    assert (last.cards, last.servers, last.kw) == (80, 100, pytest.approx(2.9))
    assert {c.power_basis for c in fleet_costs(plan_of_two(None), PRICES, 250.0)} == {"assumed"}
    assert {c.kw for c in fleet_costs(plan_of_two(None), PRICES, None)} == {None}


def test_a_plan_is_read_back_as_it_was_written_and_may_be_priced_anew(tmp_path: Path) -> None:
    plan = plan_of_two()
    found = Capacity(plan=None, fleet=plan, prices=PRICES, costs=fleet_costs(plan, PRICES, None))
    file = tmp_path / "capacity.json"
    file.write_text(json.dumps(found.to_json()), encoding="utf-8")

    assert read_capacity(file) == found
    earlier = tmp_path / "earlier.json"
    earlier.write_text(file.read_text(encoding="utf-8").replace('"what_if"', '"lever"'), encoding="utf-8")
    assert read_capacity(earlier) == found
    dear = priced(read_capacity(file), replace(PRICES, card=Hardware(rent_per_month=20.0)))
    assert dear.costs[-1].monthly.cards == 160


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "capacity.json"
    for text in ("[]", "{}", '{"version": 1}', '{"version": 2, "fleet": null, "prices": null, "costs": []}'):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match="no plan of capacity"):
            read_capacity(file)
