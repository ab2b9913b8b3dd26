"""Sizing a fleet from batch curves: hand-made curves whose answers are known, through the real simulation."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluations import evaluation
from tests.prediction.fleets import HOST, served
from tests.prediction.simulation.services import NO_LENGTHS
from workbench.prediction.capacity import (
    CapacityPlan,
    Demand,
    cards_needed,
    plan_capacity,
    read_capacity,
)
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.values.candidate import Candidate, Precision
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError
from workbench.values.results import Evaluation
from workbench.values.service import ServiceChoices

ONE_BY_ONE = ServiceChoices()


def planned(
    evaluations: list[Evaluation], demand: Demand, choices: ServiceChoices = ONE_BY_ONE, **options: object
) -> CapacityPlan:
    return plan_capacity(
        evaluations,
        demand,
        choices={e.candidate.id: choices for e in evaluations},
        lengths=NO_LENGTHS,
        bins={e.candidate.id: () for e in evaluations},
        titles={e.candidate.id: "a candidate" for e in evaluations},
        baseline_id="none of them",
        **options,
    )


def test_cards_follow_from_the_highest_rate_of_one_and_each_of_them_then_keeps_the_limit() -> None:
    demand = Demand(rate_per_s=1000.0, p99_ms=60.0, headroom=0.25)

    member = planned([served({1: 10.0})], demand).members[0]

    highest = member.highest.load.rate_per_s
    assert highest is not None
    assert 50 < highest < 100, "a call takes 10 ms, so no worker answers 100 a second"
    assert member.highest.p99_ms.value <= 60
    assert member.cards == math.ceil(1250 / highest) == cards_needed(demand, highest)
    assert member.planned.load.rate_per_s == pytest.approx(1000 / member.cards)
    assert member.planned.p99_ms.value < member.highest.p99_ms.value


def test_with_one_card_lost_the_demand_without_headroom_is_carried() -> None:
    for rate, found in ((120.0, (2, 3)), (10.0, (1, 2))):
        member = planned([served({1: 10.0})], Demand(rate_per_s=rate, p99_ms=60.0, headroom=0.0)).members[0]
        assert (member.cards, member.cards_to_lose_one) == found


def test_a_limit_below_a_lone_request_leaves_no_fleet_and_says_how_long_it_takes() -> None:
    slow, quick = served({1: 40.0}), served({1: 5.0})
    slow = replace(slow, candidate=evaluation(threads=2).candidate)

    plan = planned([slow, quick], Demand(rate_per_s=100.0, p99_ms=30.0))

    assert [m.highest is None for m in plan.members] == [False, True], "who cannot keep the limit comes last"
    last = plan.members[1]
    assert (last.cards, last.planned) == (None, None)
    assert last.lowest_p99_ms >= 40.0


def on_a_card(call_ms: dict[int, float], **changes: object) -> Evaluation:
    found = served(call_ms, **changes)
    candidate = Candidate(target=ASCEND, precision=Precision(mode="force_fp16"), compile=AscendCompile(batches=(1, 4)))
    service = found.measurement.service
    modelled = replace(service, curve=replace(service.curve, stepped=True, threads=0, clock="modelled"))
    return replace(found, candidate=candidate, measurement=replace(found.measurement, service=modelled))


def test_cards_stand_in_servers() -> None:
    choices = ServiceChoices(max_batch_size=(4,), workers=(2,))
    demand = Demand(rate_per_s=3000.0, p99_ms=60.0, cards_per_server=2)

    plan = planned([on_a_card({1: 4.0, 4: 8.0})], demand, choices)

    member = plan.members[0]
    assert plan.unit == "card"
    assert member.clock == "modelled"
    assert member.cards is not None
    assert member.servers == math.ceil(member.cards / 2)
    assert "each card has one front end" in " ".join(plan.assumptions)


def test_what_limits_a_card_is_named() -> None:
    demand = Demand(rate_per_s=1000.0, p99_ms=200.0)
    model = planned([served({1: 10.0})], demand).members[0]
    front = planned([served({1: 1.0}, host=replace(HOST, request_ms=10.0))], demand).members[0]
    limit = planned([served({1: 10.0})], replace(demand, p99_ms=21.0)).members[0]

    assert [m.limited_by for m in (model, front, limit)] == ["the model", "the front end", "the limit on P99"]


def test_clients_of_a_fleet_compute_elsewhere() -> None:
    """The costs of the sweep hold a load generator on the same host; a fleet's host has none."""
    costly = planned([served({1: 10.0}, host=replace(HOST, client_ms=50.0))], Demand(rate_per_s=100.0, p99_ms=60.0))
    none = planned([served({1: 10.0}, host=replace(HOST, client_ms=0.0))], Demand(rate_per_s=100.0, p99_ms=60.0))

    assert costly.members[0].highest is not None
    assert none.members[0].highest is not None
    assert costly.members[0].cards == none.members[0].cards


def test_a_plan_says_what_it_rests_on_and_that_emulated_times_are_no_device_s() -> None:
    emulated = served({1: 10.0})
    emulated = replace(emulated, toolchain=replace(emulated.toolchain, emulated=True))

    plan = planned([emulated], Demand(rate_per_s=100.0, p99_ms=60.0))

    words = " ".join(plan.assumptions)
    for fact in ("EMULATED", "PREDICTED", "Poisson", "linearly", "assumed in a test"):
        assert fact in words
    assert plan.emulated
    assert json.loads(json.dumps(encode(plan)))["members"][0]["emulated"] is True


def test_what_makes_no_plan_is_refused_with_what_to_do() -> None:
    demand = Demand(rate_per_s=100.0, p99_ms=60.0)
    with pytest.raises(ConfigError, match=r"has no batch curve.*`service:` section and sweep again"):
        planned([evaluation()], demand)
    with pytest.raises(ConfigError, match="cannot stand in one plan"):
        planned([on_a_card({1: 4.0, 4: 8.0}), served({1: 10.0})], demand)
    for change in ({"rate_per_s": 0.0}, {"p99_ms": -1.0}, {"headroom": -0.1}, {"price_per_hour": 0.0}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            replace(demand, **change)


def test_a_plan_is_read_back(tmp_path: Path) -> None:
    plan = planned([served({1: 10.0})], Demand(rate_per_s=200.0, p99_ms=60.0, price_per_hour=2.0))
    file, written = tmp_path / "plan.json", plan.to_json()
    file.write_text(json.dumps(written), encoding="utf-8")
    assert read_capacity(file) == plan
    for body, message in (({**written, "version": 9}, "no plan of capacity"), ({"version": 1}, "'demand' is missing")):
        file.write_text(json.dumps(body), encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            read_capacity(file)
