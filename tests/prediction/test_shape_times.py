"""Times of shapes that nobody compiled, on made-up surfaces."""

from workbench.prediction.shape_times import FEWEST_ERRORS, Shape, predict_times
from workbench.values.measurement import Estimate

LENGTHS, BATCHES = (16, 48, 64, 96, 128), (1, 8, 32)
SHAPES = [(batch, length) for batch in BATCHES for length in LENGTHS]


def exact(ms: float) -> Estimate:
    return Estimate(value=ms, low=ms, high=ms)


def surface(scale: float = 1.0, *, bent: float = 0.0) -> dict[Shape, Estimate]:
    """A launch, work for every position, and attention; `bent` by how much odd shapes stray from it."""
    found = {}
    for number, (batch, length) in enumerate(SHAPES):
        positions = batch * length
        ms = scale * (0.2 + 2e-4 * positions + 5e-7 * positions * length) * (1 + bent * (-1) ** number)
        found[batch, length] = exact(ms)
    return found


def part(times: dict[Shape, Estimate], *shapes: Shape) -> dict[Shape, Estimate]:
    return {shape: times[shape] for shape in shapes}


CORNERS = ((1, 16), (1, 128), (8, 64), (32, 16), (32, 128), (8, 16), (8, 128))


def test_a_known_shape_of_one_structure_is_no_prediction() -> None:
    found = predict_times({"a": surface()}, "a", [(8, 64)])

    assert (found.times[8, 64], found.margin, found.errors) == (surface()[8, 64], 0.0, 0)


def test_a_structure_predicts_its_other_shapes_and_says_how_well() -> None:
    found = predict_times({"a": part(surface(), *CORNERS)}, "a", SHAPES)

    assert found.errors >= FEWEST_ERRORS
    for shape, true in surface().items():
        assert found.times[shape].low <= true.value <= found.times[shape].high


def test_one_shape_of_a_structure_is_enough_once_two_others_show_that_scaling_holds() -> None:
    known = {"a": surface(bent=0.03), "b": surface(0.7, bent=-0.02), "c": part(surface(0.4), (1, 128))}

    found = predict_times(known, "c", SHAPES)

    assert 0.03 < found.margin < 0.2, "as wide as what was left out strayed"
    for shape, true in surface(0.4).items():
        assert found.times[shape].low <= true.value <= found.times[shape].high
    assert predict_times({"a": known["a"], "c": known["c"]}, "c", SHAPES) is None, "nothing shows that scaling holds"


def test_too_little_is_no_prediction() -> None:
    assert predict_times({}, "a", SHAPES) is None
    assert predict_times({"a": part(surface(), (1, 128))}, "a", SHAPES) is None
    assert predict_times({"a": part(surface(), (1, 128), (8, 128), (32, 128))}, "a", [(1, 16)]) is None
    assert predict_times({"a": surface()}, "never seen", SHAPES) is None
