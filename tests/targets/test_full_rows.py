"""Any number of rows through a file of any form: a row's answer does not depend on how rows are grouped into calls."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.emulated_cann import emulated_environment, switched_on
from tests.targets.encoder import model_of, save, value
from workbench.evaluation.reference import open_reference
from workbench.graph.intake.prepared import prepared
from workbench.graph.read import read_model
from workbench.targets import open_target
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.base import Session
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.testing.conformance import compiled, lowered
from workbench.values.candidate import Candidate, Precision, Serving
from workbench.values.model import Model

WEIGHT = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
LENGTH, LONGER = 5, 8
Batch = int | str


def net(path: Path, batch: Batch, length: Batch) -> Model:
    """each = x · w of every position, all = their sum; and a table of as many rows as a call may have by chance, which
    nothing declares to have one for each sample."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["each"], name="product"),
        helper.make_node("ReduceSum", ["each", "axis"], ["all"], name="sum", keepdims=0),
        helper.make_node("Mul", ["known", "one"], ["table"], name="table"),
    ]
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    weights = {"w": WEIGHT, "axis": np.array([1]), "known": table, "one": np.ones((), np.float32)}
    outputs = {"each": [batch, length, 3], "all": [batch, 3], "table": [3, 2] if batch == "batch" else ["kept", 2]}
    proto = model_of(nodes, weights, [value("x", [batch, length, 4])], [value(n, s) for n, s in outputs.items()])
    return prepared(read_model(save(proto, path)), folder=path.parent / "models")


def of(candidate: Candidate, *, probe: bool = False) -> Callable[[Model, Path], Session]:
    def opened(model: Model, to: Path) -> Session:
        target = open_target(candidate.target)
        if probe:
            return target.probe(lowered(target, model, candidate, None, to / "lowered"), ["each"])
        return target.open(*compiled(target, model, candidate, None, to), candidate)

    return opened


def on_the_device(batches: tuple[int, ...], bins: tuple[int, ...], gears: bool) -> Callable[[Model, Path], Session]:
    shapes = AscendCompile(batches=batches, sequence_bins=bins, shapes="gears" if gears else "static")
    return of(Candidate(target=ASCEND, precision=Precision(mode="force_fp16"), compile=shapes))


HOST = {
    "reference": lambda model, to: open_reference(model),
    "onnxruntime": of(Candidate(target="onnxruntime")),
    "probe": of(Candidate(target="onnxruntime"), probe=True),
    "openvino": of(Candidate(target="openvino", compile=OpenVinoCompile())),
    "streams": of(
        Candidate(target="openvino", compile=OpenVinoCompile(), serving=Serving(streams=2, intra_op_threads=2))
    ),
}
FORMS: list[tuple[Batch, Batch]] = [(1, LENGTH), (3, LENGTH), (1, "length"), (3, "length"), ("batch", LENGTH)]
DEVICE = {
    "device, one file": (on_the_device((3,), (), False), 3, LENGTH),
    "device, files": (on_the_device((1, 3), (), False), "batch", LENGTH),
    "device, one row": (on_the_device((1,), (LENGTH, LONGER), False), 1, "length"),
    "device, gears": (on_the_device((3,), (LENGTH, LONGER), True), 3, "length"),
}


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with switched_on(emulated_environment(tmp_path_factory.mktemp("cann"))):
        yield


@pytest.mark.parametrize("opener", HOST)
@pytest.mark.parametrize(("batch", "length"), FORMS)
def test_rows_on_the_host(opener: str, batch: Batch, length: Batch, tmp_path: Path) -> None:
    if opener in ("openvino", "streams") and find_spec("openvino") is None:
        pytest.skip("OpenVINO is not installed")
    every_row_is_its_own(HOST[opener](net(tmp_path / "m.onnx", batch, length), tmp_path), batch, length, 1e-5, least=0)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("form", DEVICE)
def test_rows_on_the_device(form: str, tmp_path: Path) -> None:
    opened, batch, length = DEVICE[form]
    every_row_is_its_own(opened(net(tmp_path / "m.onnx", batch, length), tmp_path), batch, length, 1e-2, least=1)


def every_row_is_its_own(session: Session, batch: Batch, length: Batch, tolerance: float, *, least: int) -> None:
    """Whatever rows are fed together, in whatever order; also none, where `least` is 0."""

    @settings(deadline=None, max_examples=25)
    @given(st.integers(least, 8), st.integers(0, 99), st.sampled_from([LENGTH] if length == LENGTH else [2, LENGTH]))
    def holds(rows: int, seed: int, steps: int) -> None:
        x = np.random.default_rng(seed).normal(size=(rows, steps, 4)).astype(np.float32)

        found = session.run({"x": x})

        assert found["each"].shape == (rows, steps, 3)
        np.testing.assert_allclose(found["each"], x @ WEIGHT, rtol=0, atol=12 * tolerance)
        np.testing.assert_allclose(found["all"], (x @ WEIGHT).sum(1), rtol=0, atol=60 * tolerance)
        table = found["table"] if batch != 1 else found["table"][:1]  # where a call is one sample, each has its own
        assert table.shape[0] == (min(rows, 1) if batch == 1 else 3 if batch == "batch" else 1)
        assert table.ravel().tolist() == [0, 1, 2, 3, 4, 5][: 6 * len(table)]

    try:
        holds()
    finally:
        session.close()
