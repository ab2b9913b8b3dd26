"""A model that carries a state, against the same recurrence in NumPy."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.evaluation.recurrent import SIZES, recurrent, sequences
from tests.small_graphs import write_graph
from workbench.evaluation.carried import (
    single_steps,
    states_of,
    timed_feeds,
    whole_samples,
)
from workbench.evaluation.reference import open_reference
from workbench.graph.read import read_model
from workbench.inputs.dataset import Dataset, check_inputs, read_manifest
from workbench.inputs.dataset.batch import STEPS
from workbench.targets import open_target
from workbench.targets.base import Array
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model


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


def cached(path: Path) -> Model:
    """present = past and x, y = the sum of all that was seen, seen = mask over it: [batch, past + 1]."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "one"], ["new"]),
        helper.make_node("Concat", ["past", "new"], ["present"], axis=1),
        helper.make_node("ReduceSum", ["present", "one"], ["y"], keepdims=0),
        helper.make_node("ReduceSum", ["present", "two"], ["sums"], keepdims=0),
        helper.make_node("Mul", ["sums", "mask"], ["seen"]),
    ]
    inputs = {"x": ["batch", 2], "mask": ["batch", "past + 1"], "past": ["batch", "past", 2]}
    outputs = {"y": ["batch", 2], "seen": ["batch", "total"], "present": ["batch", "total", 2]}
    return read_model(write_graph(path, nodes, inputs, outputs, one=np.array([1]), two=np.array([2])))


def with_cache(folder: Path, model: Model, more: str = "") -> Dataset:
    x = np.random.default_rng(0).normal(size=(4, 5, 2)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, mask=np.ones((4, 5, 8), np.float32), **{"x.sizes": SIZES, "mask.sizes": SIZES})
    files = "{calibration: data.npz, validation: data.npz, holdout: data.npz}"
    text = f"version: 1\ntask: tensors\nfiles: {files}\nstate: {{present: past}}\n{more}"
    (folder / "m.yaml").write_text(text, encoding="utf-8")
    dataset = read_manifest(folder / "m.yaml", model)
    check_inputs(dataset, model)
    return dataset


@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("start", [0, 2])
def test_a_state_that_grows_begins_with_its_size_and_gives_what_each_step_added(
    tmp_path: Path, start: int, target: str
) -> None:
    model = cached(tmp_path / "m.onnx")
    dataset = with_cache(tmp_path, model, f"axes: {{past: {{start: {start}}}}}\n" if start else "")
    made, candidate = open_target(target), Candidate(target=target)
    for name in ("lowered", "compiled"):
        (tmp_path / name).mkdir()
    lowered = made.lower(model, candidate, None, tmp_path / "lowered")
    artifact = made.compile(lowered, candidate, tmp_path / "compiled")
    session = whole_samples(made.open(artifact, tmp_path / "compiled", candidate), dataset.interface, model)

    (batch,) = dataset.batches("validation", 4)
    outputs = session.run(batch.feeds)
    session.close()

    x = batch.feeds["x"]
    np.testing.assert_allclose(outputs["y"], np.cumsum(x, axis=1), rtol=1e-5, atol=1e-6)
    assert np.array_equal(outputs["present"][:, :, 0], x)
    assert outputs["seen"].shape == (4, 5, start + 5)
    np.testing.assert_allclose(outputs["seen"][:, 0, start], x[:, 0].sum(axis=1), rtol=1e-5)
    assert not outputs["seen"][:, 0, start + 1 :].any()


def test_what_a_growing_state_cannot_have_is_refused_with_what_to_write(tmp_path: Path) -> None:
    model = cached(tmp_path / "m.onnx")

    with pytest.raises(ConfigError, match="an axis of a state, which grows from step to step and is never padded"):
        with_cache(tmp_path, model, "axes: {past: {bins: [4, 8]}}\n")
    with pytest.raises(ConfigError, match="no state has a free axis 'pasts'"):
        with_cache(tmp_path, model, "axes: {pasts: {start: 1}}\n")
    dataset = with_cache(tmp_path, model, "axes: {past: {start: 6}}\n")
    session = whole_samples(open_reference(model), dataset.interface, model)
    with pytest.raises(MeasureError, match="'mask' has 8 along axis 1, and 9 are needed where 'past' has grown to 8"):
        session.run(next(iter(dataset.batches("validation", 4))).feeds)
