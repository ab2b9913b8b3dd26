"""A modelled clock with three unknowns, and calls that it costs, for tests of what errors make of them."""

from dataclasses import replace

from tests import evaluations
from workbench.values.measurement import Estimate, Latency, ServiceResult
from workbench.values.modelled_times.costs import at_errors
from workbench.values.modelled_times.statement import (
    CallCosts,
    ModelledCalls,
    ModelledService,
    ScaledService,
    TimingModel,
    Unknown,
    Work,
)

COMMAND = "python -m measure {}"


def unknown(name: str, *moves: str, factor_95: float, value: float = 10.0) -> Unknown:
    return Unknown(
        name=name,
        about=f"the {name} of a test",
        moves=moves,
        factor_95=factor_95,
        value=value,
        unit="us" if name == "launch" else "TFLOPS",
        reads="time" if name == "launch" else "rate",
        source="[inferred] a test",
        settled_by=COMMAND.format(name),
    )


CLOCK = TimingModel(
    name="a card, tests",
    prices=(("float16", 10.0), ("int8", 5.0), ("launch", 10.0)),
    unknowns=(
        unknown("matrix", "float16", "int8", factor_95=1.6),
        unknown("int8_gain", "int8", factor_95=2.0, value=2.0),
        unknown("launch", "launch", factor_95=2.0),
    ),
)


def call(*, launches: float = 0, **amounts: float) -> CallCosts:
    """Amounts of work by what prices it; microseconds come to 10 each, of INT8 to 5."""
    counted = {**({"launch": launches} if launches else {}), **amounts}
    return CallCosts(works=(Work(count=1, amounts=tuple((name, float(value)) for name, value in counted.items())),))


def latency(costs: CallCosts, baseline: CallCosts | None = None, *, clock: TimingModel = CLOCK) -> Latency:
    """Against a baseline of 100 units of float16; figures as the clock has them."""
    against = call(float16=100) if baseline is None else baseline
    ours, theirs = at_errors(clock).call_ms([costs, against])[:, 0]
    found = evaluations.latency(float(ours), float(theirs / ours))
    return replace(
        found,
        p50_ms=Estimate(value=float(ours), low=float(ours), high=float(ours)),
        speedup=Estimate(value=float(theirs / ours), low=float(theirs / ours), high=float(theirs / ours)),
        clock="modelled",
        modelled=ModelledCalls(clock=clock, candidate=(costs,), baseline=(against,), pairs=((0, 0, 100),)),
    )


def service(costs: CallCosts, *, clock: TimingModel = CLOCK) -> ServiceResult:
    """1000 answers a second at a P99 of 20 ms, both in proportion to the time of a call."""
    scaled = tuple(
        ScaledService(scale=scale, throughput_per_s=1000 / scale, p50_ms=10 * scale, p99_ms=20 * scale)
        for scale in (0.5, 1.0, 2.0)
    )
    found = evaluations.service(1000.0, p99_ms=20.0)
    return replace(found, modelled=ModelledService(clock=clock, calls=(costs,), scaled=scaled))
