"""A prepared model gives what the user's file gives, batch first, and a file that needs nothing stays that file."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.graph.intake.graphs import noisy, of_opset, projection, rate_dependent, recurrent
from tests.small_graphs import weight, write_graph
from workbench.graph import apart
from workbench.graph import write as writing
from workbench.graph.door import call_apart, open_foreign
from workbench.graph.intake.preparation import prepare, wanted
from workbench.graph.intake.prepared import PROVENANCE, prepare_here, prepared
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.interface import InputUse, Interface
from workbench.values.model import Model


def run(path: Path, **feeds: np.ndarray) -> list[np.ndarray]:
    found: list[np.ndarray] = onnxruntime.InferenceSession(str(path)).run(None, feeds)
    return found


def declared(**inputs: object) -> Interface:
    """`rate=16000` is a constant, `x=("batch", 4)` are axes."""
    uses = [
        InputUse(name=name, axes=said) if isinstance(said, tuple) else InputUse(name=name, constant=said)
        for name, said in inputs.items()
    ]
    return Interface(inputs=tuple(uses))


def made(path: Path, interface: Interface, folder: Path) -> Model:
    folder.mkdir(exist_ok=True)
    done = prepare(read_model(path), interface, folder)
    assert done is not None
    return read_model(done[0])


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def test_a_model_that_needs_nothing_is_the_very_file(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "m.onnx", [projection()], {"x": ["n", 4]}, {"y": ["n", 3]}, w=weight(4, 3))
    source = open_foreign(path)

    assert prepared(source, folder=tmp_path / "models") is source
    assert not (tmp_path / "models").exists()


def test_a_disk_that_takes_no_file_is_not_called_a_damaged_model(tmp_path: Path) -> None:
    source = open_foreign(of_opset(tmp_path / "m.onnx", 9, ("n", 4)))
    request = {"path": str(source.path), "interface": encode(Interface()), "folder": str(tmp_path / "gone")}

    with pytest.raises(ToolchainError, match=r"a file could not be written.*disk full"):
        call_apart(source.path, source.size_bytes, prepare_here, request, about="preparing it")


def test_a_constant_is_built_in_and_the_branch_it_takes_shows_its_layers(tmp_path: Path) -> None:
    path = rate_dependent(tmp_path / "m.onnx")
    source, x = open_foreign(path), rows(5, 4)

    model = prepared(source, declared(rate=16000), tmp_path / "models")

    assert [spec.name for spec in model.inputs] == ["x"]
    np.testing.assert_array_equal(run(model.path, x=x), run(path, x=x, rate=np.asarray(16000)))
    graph = load_graph(model)
    assert [layer.name for layer in quantizable_layers(graph)] == ["product_16"]
    assert not any(node.op_type == "If" for node in graph.graph.node)
    origin = model.origin
    assert origin is not None
    assert (origin.sha256, origin.path) == (source.sha256, path)
    assert [step.name for step in origin.steps] == ["constants", "branches"]
    assert dict(origin.steps[0].figures)["largest_difference"] == 0.0


def test_paths_are_relative_to_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rate_dependent(tmp_path / "m.onnx").parent)

    model = prepared(open_foreign(Path("m.onnx")), declared(rate=16000), Path("models"))

    assert [spec.name for spec in model.inputs] == ["x"]
    with pytest.raises(ConfigError, match=r"^m\.onnx: "):  # as the user wrote it
        prepared(open_foreign(Path("m.onnx")), declared(rate=(16000,)), Path("models"))


def test_it_is_made_once_and_again_where_it_was_damaged(tmp_path: Path) -> None:
    source, interface, folder = open_foreign(rate_dependent(tmp_path / "m.onnx")), declared(rate=8000), tmp_path / "to"
    first = prepared(source, interface, folder)
    written = first.path.stat().st_mtime_ns

    assert prepared(source, interface, folder) == first
    assert first.path.stat().st_mtime_ns == written

    first.path.write_bytes(first.path.read_bytes()[:-20])
    assert prepared(source, interface, folder).sha256 == first.sha256
    (first.path.parent / PROVENANCE).write_text("{", encoding="utf-8")
    assert prepared(source, interface, folder) == first


@pytest.mark.parametrize("state", [(2, "batch", 3), (2, None, 3)], ids=["named", "measured"])
def test_a_state_takes_and_gives_its_batch_first(tmp_path: Path, state: tuple[int | str | None, ...]) -> None:
    path = recurrent(tmp_path / "m.onnx", state=state)
    x, carried = rows(5, 4), rows(5, 2, 3)

    model = made(path, Interface(), tmp_path / "to")

    assert next(spec.shape for spec in model.inputs if spec.name == "state") == ("batch", 2, 3)
    y, after = run(model.path, x=x, state=carried)
    expected_y, expected = run(path, x=x, state=carried.transpose(1, 0, 2))
    np.testing.assert_allclose(y, expected_y, rtol=1e-6)
    np.testing.assert_allclose(after, expected.transpose(1, 0, 2), rtol=1e-6)


def test_without_a_batch_axis_one_call_is_one_sample(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"], name="scale"),
        projection(source="scaled"),
        helper.make_node("CumSum", ["y", "first"], ["z"], name="sum"),
    ]
    ports = {"x": ["frames", 4], "factor": []}, {"z": ["frames", 3]}
    path = write_graph(tmp_path / "m.onnx", nodes, *ports, w=weight(4, 3), first=0)

    model = made(path, declared(x=("frames", 4)), tmp_path / "to")

    assert [spec.shape for spec in model.inputs] == [(1, "frames", 4), (1,)]
    x = rows(6, 4)
    (found,) = run(model.path, x=x[None], factor=np.asarray([2.0], np.float32))
    (expected,) = run(path, x=x, factor=np.asarray(2.0, np.float32))
    np.testing.assert_allclose(found, expected[None], rtol=1e-6)


def test_a_first_axis_of_frames_that_see_each_other_is_no_batch(tmp_path: Path) -> None:
    total = helper.make_node("CumSum", ["x", "first"], ["y"], name="sum")
    ports = {"x": ["frames", 4]}, {"y": ["frames", 4]}
    dependent = write_graph(tmp_path / "a.onnx", [total], *ports, first=0)
    apart = write_graph(tmp_path / "b.onnx", [helper.make_node("Relu", ["x"], ["y"], name="relu")], *ports)

    assert made(dependent, Interface(), tmp_path / "to").inputs[0].shape == (1, "frames", 4)
    assert prepare(read_model(apart), Interface(), tmp_path) is None


def test_a_declaration_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    source = open_foreign(rate_dependent(tmp_path / "m.onnx"))

    for interface, rule in (
        (Interface(), r"'rate' of shape \[\] has no axis for samples.*constant: 16000"),
        (declared(rate=[1, 2]), r"inputs.rate.constant: its shape is \[2\], the model's input has \[\]"),
        (declared(rate=0.5), "cannot be held by int64"),
        (declared(speed=1), "no such input"),
        (declared(rate=1, x=("batch",)), r"1 axes, the model's input has 2: \[batch, 4\]"),
        (declared(rate=1, x=("batch", 5)), "5 stands where the model's own size is 4"),
        (declared(rate=1, x=[[1, 2, 3, 4]]), "nothing to feed"),
    ):
        with pytest.raises(ConfigError, match=rule):
            prepared(source, interface, tmp_path / "to")


def test_sizes_that_stand_for_any_become_named_axes_or_what_is_declared(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
    ports = {"x": [-1, 3, "?", "?"]}, {"y": [-1, 2, "?", "?"]}
    path = write_graph(tmp_path / "m.onnx", [conv], *ports, w=weight(2, 3, 1, 1))

    model = prepared(open_foreign(path), folder=tmp_path / "to")

    assert model.inputs[0].shape == ("batch", 3, "x_2", "x_3")
    assert model.outputs[0].shape == (None, 2, None, None)
    fixed = made(path, declared(x=("batch", 3, 48, "columns")), tmp_path / "fixed")
    assert fixed.inputs[0].shape == ("batch", 3, 48, "columns")


def test_noise_is_the_same_in_every_call_for_every_sample_however_padded(tmp_path: Path) -> None:
    model = made(noisy(tmp_path / "m.onnx"), declared(amount=0.5), tmp_path / "to")

    x = np.zeros((4, 3, 500), np.float32)
    (whole,), (again,), (part,) = run(model.path, x=x), run(model.path, x=x), run(model.path, x=x[:1, :, :90])
    np.testing.assert_array_equal(whole, again)
    np.testing.assert_array_equal(whole[2], whole[0])
    np.testing.assert_array_equal(whole[:1, :, :90], part)
    assert (whole[0].mean(), whole[0].std()) == pytest.approx((0.5, 1.0), abs=0.1)
    assert abs(np.corrcoef(whole[0])[0, 1]) < 0.15


def test_noise_that_shows_now_and_then_only_is_fixed_too_or_refused_where_that_cannot_be(tmp_path: Path) -> None:
    """An id changes where noise decides between two values that are nearly equal."""
    noise = helper.make_node("RandomNormalLike", ["x"], ["noise"], name="noise", scale=0.3)
    pick = helper.make_node("ArgMax", ["sum"], ["y"], name="pick", axis=1, keepdims=0)
    nodes = [noise, helper.make_node("Add", ["x", "noise"], ["sum"], name="sum"), pick]
    path = write_graph(tmp_path / "m.onnx", nodes, {"x": ["batch", 4]}, {"y": (TensorProto.INT64, ["batch"])})
    draw = helper.make_node("Multinomial", ["x"], ["y"], name="pick", sample_size=50)
    drawn = write_graph(tmp_path / "n.onnx", [draw], {"x": ["batch", 4]}, {"y": (TensorProto.INT32, None)})

    model = made(path, Interface(), tmp_path / "to")
    unseen = prepare(read_model(noisy(tmp_path / "source" / "m.onnx")), declared(amount=0.0), tmp_path)

    x = np.zeros((50, 4), np.float32)
    np.testing.assert_array_equal(run(model.path, x=x)[0], run(model.path, x=x)[0])
    assert unseen is not None
    assert [step.name for step in unseen[1]] == ["constants"], "what reaches no output is left alone"
    with pytest.raises(ConfigError, match=r"Multinomial 'pick' draws random numbers.*scores as output"):
        prepared(open_foreign(drawn), folder=tmp_path / "to")


def test_half_precision_with_the_batch_in_the_middle_is_transposed_behind_the_casts(tmp_path: Path) -> None:
    """Before them, ONNX Runtime 1.31.1 crashes where an output's shape is not declared."""
    half = TensorProto.FLOAT16
    nodes = [
        helper.make_node("MatMul", ["state", "w"], ["kept"], name="kept"),
        helper.make_node("Tanh", ["kept"], ["stateN"], name="squash"),
    ]
    ports = {"state": (half, [2, "batch", 3])}, {"stateN": (half, None)}
    path = write_graph(tmp_path / "m.onnx", nodes, *ports, w=weight(3, 3).astype(np.float16))

    model = made(path, declared(state=(2, "batch", 3)), tmp_path / "to")

    state = rows(4, 2, 3).astype(np.float16)
    expected = run(path, state=state.transpose(1, 0, 2))[0].transpose(1, 0, 2)
    np.testing.assert_allclose(run(model.path, state=state)[0], expected, atol=0.01)


@pytest.mark.parametrize("listed", [False, True], ids=["weights", "weights among the inputs"])
def test_half_precision_is_worked_on_in_float32(tmp_path: Path, listed: bool) -> None:
    half = TensorProto.FLOAT16
    inputs = {"x": (half, ["batch", 4]), **({"w": (half, [4, 3])} if listed else {})}  # as files of old IR versions do
    outputs = {"y": (half, ["batch", 3])}
    path = write_graph(tmp_path / "m.onnx", [projection()], inputs, outputs, w=weight(4, 3).astype(np.float16))
    x = rows(5, 4).astype(np.float16)

    model = made(path, Interface(), tmp_path / "to")

    assert [layer.name for layer in quantizable_layers(load_graph(model))] == ["projection"]
    assert (model.inputs[0].dtype, model.outputs[0].dtype) == ("float16", "float16")
    np.testing.assert_allclose(run(model.path, x=x)[0], run(path, x=x)[0], atol=0.01)


def test_external_data_stay_beside_and_are_not_copied(tmp_path: Path) -> None:
    path = recurrent(tmp_path / "source" / "m.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)

    model = prepared(open_foreign(path), folder=tmp_path / "models")

    (data,) = model.external_files
    assert data.samefile(path.with_name("weights.bin"))
    (found, _), (expected, _) = (
        run(model.path, x=rows(2, 4), state=rows(2, 2, 3)),
        run(path, x=rows(2, 4), state=rows(2, 2, 3).transpose(1, 0, 2)),
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("where", ["one file", "external data", "beyond what protobuf holds"])
@pytest.mark.parametrize("what", ["opset", "half", "noise"])
def test_a_large_model_is_prepared_without_its_weights_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, what: str
) -> None:
    """Limits lowered in place of gigabytes: the result is what a small file gives."""
    kind = np.float16 if what == "half" else np.float32
    ports = [{n: (TensorProto.FLOAT16 if what == "half" else TensorProto.FLOAT, ["batch", 64])} for n in "xy"]
    nodes = [projection("y" if what != "noise" else "product")]
    if what == "noise":
        nodes += [helper.make_node("RandomNormalLike", ["product"], ["drawn"], name="draw", seed=1.0)]
        nodes += [helper.make_node("Add", ["product", "drawn"], ["y"], name="sum")]
    opset = 9 if what == "opset" else 17
    path = write_graph(tmp_path / "from" / "m.onnx", nodes, *ports, opset, w=weight(64, 64).astype(kind))
    small = made(path, Interface(), tmp_path / "small")
    if where == "external data":
        (path.parent / "inner").mkdir()
        onnx.save(onnx.load(path), path, save_as_external_data=True, location="inner/m.data", size_threshold=0)
    # a small file goes the way of a large one: the limits are lowered, not the code replaced
    monkeypatch.setattr(apart, "FROM_BYTES", 0)
    monkeypatch.setattr(apart, "LARGE_BYTES", 1024)
    if where == "beyond what protobuf holds":
        monkeypatch.setattr(writing, "MOST_BYTES", 2048)
        monkeypatch.setattr(writing, "BESIDE_BYTES", 1024)

    large = made(path, Interface(), tmp_path / "large")

    assert bool(large.external_files) == (where != "one file" and (what, where) != ("half", "external data"))

    if where == "external data" and what != "half":
        assert large.external_files[0].samefile(path.parent / "inner" / "m.data")
    x = rows(5, 64).astype(kind)
    np.testing.assert_array_equal(run(large.path, x=x)[0], run(small.path, x=x)[0])


@pytest.mark.parametrize("opset", range(7, 22))
def test_a_prepared_model_gives_what_its_source_gives(tmp_path: Path, opset: int) -> None:
    """For every opset, with a free batch, a fixed one, and none."""
    for first, interface in (("batch", Interface()), (5, Interface()), ("rows", declared(x=("rows", 4)))):
        path = of_opset(tmp_path / f"{first}.onnx", opset, [first, 4])
        source, folder, lone = read_model(path), tmp_path / f"to-{first}", first == "rows"
        folder.mkdir()
        assert wanted(source, interface) == (opset < 13 or lone)
        done = prepare(source, interface, folder)
        x = rows(5, 4)
        (expected,) = run(path, x=x)
        (found,) = run(done[0] if done else path, x=x[None] if lone else x)
        np.testing.assert_allclose(found[0] if lone else found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "declared_shape", "given"),
    [(1, ["n", 3], (1, 3)), (4, ["n", 3], (4, 3)), (4, [4, 3], None), ("n", ["n", 3], None)],
)
def test_an_output_says_whether_it_has_a_row_for_each_sample(
    tmp_path: Path, batch: int | str, declared_shape: list[int | str], given: tuple[int, ...] | None
) -> None:
    """A table of as many rows as a call has samples, by chance, does not turn round with them."""
    table = helper.make_node("Mul", ["known", "one"], ["table"])
    ports = {"x": [batch, 4]}, {"y": declared_shape, "table": ["kept", 2]}
    constants = {"w": weight(4, 3), "known": rows(4, 2), "one": np.ones((), np.float32)}
    path = write_graph(tmp_path / "m.onnx", [projection(), table], *ports, **constants)

    model = prepared(open_foreign(path), folder=tmp_path / "models")

    shapes = {spec.name: spec.shape for spec in model.outputs}
    assert shapes["y"] == (given or tuple(declared_shape))
    assert shapes["table"] == (("kept", 2) if batch == "n" else (1, "kept", 2))
    assert (model.path == path) == (batch == "n")
