"""The bound on a parameter's effect holds it, and what makes no difference is bounded below the noise."""

import numpy as np

from tests.spaces import space_of_choices
from workbench.search.parts import Seen
from workbench.search.relevance import FEWEST, bounds
from workbench.search.surrogate import axes_of

SPACE = space_of_choices(algorithm=("a", "b", "c"), layers=(0, 1, 2), fused=("on", "off"), graph=("all", "basic"))
AXES = axes_of(SPACE)


def measured(count: int, seed: int) -> tuple[list[Seen], np.ndarray, dict[str, float]]:
    """Candidates that differ in everything at once; the logarithms' true effects of `fused` and `graph`."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, len(places), count) for places in AXES.places], axis=1)
    effect = rng.normal(0, 0.1)
    truth = np.array([0.0, 0.3, -0.2])[codes[:, 0]] + 0.05 * codes[:, 1] + effect * codes[:, 2]
    found = np.exp(4 + truth + rng.normal(0, 0.02, count))
    seen = [
        Seen(
            assignment={p.name: p.choices[code] for p, code in zip(SPACE.parameters, row, strict=True)},
            numbers={"throughput_per_s": value},
            errors={"throughput_per_s": 0.02 * value},
        )
        for row, value in zip(codes, found, strict=True)
    ]
    return seen, codes, {"fused": abs(effect), "graph": 0.0}


def test_bounds_hold_true_effects_and_name_what_makes_no_difference() -> None:
    held, named = [], 0
    for seed in range(12):
        seen, _, truth = measured(20, seed)
        found = {name: by["throughput_per_s"] for name, by in bounds(AXES, seen, ["throughput_per_s"]).items()}
        held += [found[name].most >= np.expm1(effect) for name, effect in truth.items()]
        named += found["graph"].most <= found["graph"].noise
        assert found["algorithm"].most > found["algorithm"].noise
    assert np.mean(held) >= 0.9
    assert named >= 8


def test_too_few_candidates_or_choices_tried_too_seldom_say_nothing() -> None:
    seen, codes, _ = measured(20, 0)

    assert bounds(AXES, seen[: FEWEST - 1], ["throughput_per_s"]) == {}
    one_graph = [s for s, code in zip(seen, codes[:, 3], strict=True) if code == 0] * 2
    assert "graph" not in bounds(AXES, one_graph, ["throughput_per_s"])
