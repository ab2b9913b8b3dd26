"""A model that carries a state, against the same recurrence in NumPy."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.recurrent import SIZES, recurrent, sequences
from workbench.evaluation.carried import (
    open_reference,
    single_steps,
    states_of,
    timed_feeds,
    whole_samples,
)
from workbench.inputs.dataset.batch import STEPS
from workbench.targets.base import Array
from workbench.values.errors import ConfigError
from workbench.values.model import TensorSpec


def by_hand(x: Array, first: float) -> tuple[Array, Array]:
    """(outputs, states before each step) of one sequence [steps, 2]."""
    h = np.full(2, first, np.float32)
    outputs, states = [], []
    for step in x:
        outputs.append(step + h)
        states.append(h)
        h = h / 2 + step
    return np.array(outputs), np.array(states)


@pytest.mark.parametrize("first", [0.0, 0.5])
def test_a_sequence_is_run_step_by_step_from_the_declared_state(tmp_path: Path, first: float) -> None:
    model = recurrent(tmp_path / "m.onnx")
    dataset = sequences(tmp_path, model, f"inputs: {{h: {{initial: {first}}}}}\n" if first else "")
    session = whole_samples(open_reference(model), dataset.interface, model)
    for batch in dataset.batches("validation", 3):
        outputs = session.run(batch.feeds)
        assert outputs["y"].shape == batch.feeds["x"].shape
        for row, steps in enumerate(batch.sizes[STEPS]):
            expected, _ = by_hand(batch.feeds["x"][row, :steps], first)
            np.testing.assert_allclose(outputs["y"][row, :steps], expected, rtol=1e-6)


def test_single_steps_carry_the_states_that_the_float_model_reached(tmp_path: Path) -> None:
    model = recurrent(tmp_path / "m.onnx")
    dataset = sequences(tmp_path, model)
    seen = 0
    for batch in dataset.batches("validation", 4):
        possible = {
            tuple(np.concatenate(pair).round(4))
            for row, steps in enumerate(batch.sizes[STEPS])
            for pair in zip(batch.feeds["x"][row, :steps], by_hand(batch.feeds["x"][row, :steps], 0)[1], strict=True)
        }
        for feeds in single_steps(dataset.interface, model, [batch], taken=2):
            for x, h in zip(feeds["x"], feeds["h"], strict=True):
                assert tuple(np.concatenate([x, h]).round(4)) in possible
                seen += 1
    assert seen == sum(min(size, 2) for size in SIZES)
    timed = timed_feeds(dataset, model, "validation", count=5, batch=3, seed=0)
    assert [feeds["x"].shape for feeds in timed] == [(3, 2)] * 5


def test_a_state_that_cannot_be_carried_is_refused(tmp_path: Path) -> None:
    model = recurrent(tmp_path / "m.onnx", state="past")
    dataset = sequences(tmp_path, recurrent(tmp_path / "n.onnx"))
    assert states_of(dataset.interface, model)[0].sizes == (2,), "the output says how large it is"
    other = recurrent(tmp_path / "o.onnx", state=3)
    with pytest.raises(ConfigError, match=r"'hN' has the shape \[batch, 2\], 'h' \[batch, 3\]"):
        states_of(dataset.interface, other)
    free = replace(
        recurrent(tmp_path / "p.onnx"),
        outputs=(spec("y", 2), spec("hN", "grown")),
        inputs=(spec("x", 2), spec("h", "past")),
    )
    with pytest.raises(ConfigError, match=r"'h' has the shape \[batch, past\]: a state has the same size"):
        states_of(dataset.interface, free)


def spec(name: str, size: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=("batch", size))
