"""What every target must do, whatever the vendor: subclass, give the fixtures, inherit the tests.

    from workbench.testing.conformance import HostConformance
    from workbench.testing.encoder import save, tiny_encoder

    @pytest.fixture(scope="module")
    def encoder(tmp_path_factory):
        return save(tiny_encoder(), tmp_path_factory.mktemp("encoder") / "model.onnx")

    class TestMine(HostConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def target(cls):
            return MyTarget()

        @pytest.fixture(scope="class")
        @classmethod
        def float_candidate(cls):
            return Candidate(target="mine")

A target whose compiled files hold one shape only sets `batch` and `length` to it; the others are dynamic.
"""

import contextlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.qdq import lower_dynamic
from workbench.quantization.record import ActivationScale, LayerRecord, QuantizationRecord, WeightScale
from workbench.targets.base import DeviceSession, Session, StatesForms, Target
from workbench.targets.classes import numerics_class, time_class
from workbench.testing.encoder import Array, ids, model_of, record_for, record_with, run, save, value
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Precision, Quantization, Serving
from workbench.values.documents.canonical import file_digest
from workbench.values.errors import CompileError, ConfigError, LoweringError, MeasureError, ToolchainError
from workbench.values.model import Model

STATIC = Quantization(
    scheme="static",
    algorithm="minmax",
    activation_symmetric=False,
    weight_granularity="tensor",
    attention_matmul=False,
    keep_float=0,
)
BATCH, LENGTH = 4, 7


def lowered(target: Target, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Path:
    to.mkdir(parents=True)
    return target.lower(model, candidate, record, to)


def compiled(
    target: Target, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path
) -> tuple[Artifact, Path]:
    file = lowered(target, model, candidate, record, to / "lowered")
    (to / "compiled").mkdir()
    return target.compile(file, candidate, to / "compiled"), to / "compiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A candidate of the encoder and what a target made of it."""

    target: Target
    candidate: Candidate
    record: QuantizationRecord | None
    artifact: Artifact
    directory: Path

    def open(self) -> contextlib.closing[Session]:
        return contextlib.closing(self.target.open(self.artifact, self.directory, self.candidate))

    def outputs(self, feeds: dict[str, Array]) -> Array:
        with self.open() as session:
            return session.run(feeds)["logits"]

    def classes(self) -> tuple[str, str]:
        """(numerics class, time class at the suite's shape)"""
        made = (self.target, self.artifact, self.directory, self.candidate)
        return numerics_class(*made), time_class(*made, batch=BATCH, length=LENGTH)

    def modelled_ms(self) -> float:
        with self.open() as session:
            assert isinstance(session, DeviceSession)
            session.run(ids(BATCH, LENGTH))
            return session.times().execute_ms


def form(target: Target, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Form:
    artifact, directory = compiled(target, model, candidate, record, to)
    return Form(target=target, candidate=candidate, record=record, artifact=artifact, directory=directory)


def errors_of(target: Target, model: Model, candidate: Candidate) -> list[str]:
    return [issue.problem for issue in target.check(model, candidate) if issue.severity == "error"]


class TargetConformance:
    """Fixtures to give: `target`, `model_path` (a tiny encoder) and `float_candidate`."""

    dynamic_batch = True

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, model_path: Path) -> Model:
        return read_model(model_path)

    @pytest.fixture(scope="class")
    @classmethod
    def static_candidate(cls, float_candidate: Candidate) -> Candidate:
        return replace(float_candidate, quantization=STATIC)

    @pytest.fixture(scope="class")
    @classmethod
    def rows_candidate(cls, static_candidate: Candidate) -> Candidate:
        """The same for a model whose inputs have no length; a target that compiles lengths names none here."""
        return static_candidate

    @pytest.fixture(scope="class")
    @classmethod
    def plain(
        cls, target: Target, model: Model, float_candidate: Candidate, tmp_path_factory: pytest.TempPathFactory
    ) -> Form:
        return form(target, model, float_candidate, None, tmp_path_factory.mktemp("float"))

    @pytest.fixture(scope="class")
    @classmethod
    def static(
        cls, target: Target, model: Model, static_candidate: Candidate, tmp_path_factory: pytest.TempPathFactory
    ) -> Form:
        record = record_for(model.path, ids(BATCH, LENGTH))
        return form(target, model, static_candidate, record, tmp_path_factory.mktemp("static"))

    # --- toolchain and check ---------------------------------------------------------------------------------------

    def test_the_toolchain_names_the_target_and_has_one_fingerprint(self, target: Target) -> None:
        toolchain = target.toolchain()

        assert toolchain.target == target.name
        assert toolchain.device
        assert toolchain.components
        assert list(toolchain.features) == sorted(toolchain.features)
        assert toolchain.fingerprint == type(target)().toolchain().fingerprint

    def test_a_sound_model_has_no_errors_and_int8_needs_a_layer_for_it(
        self,
        target: Target,
        model: Model,
        float_candidate: Candidate,
        static_candidate: Candidate,
        rows_candidate: Candidate,
        tmp_path: Path,
    ) -> None:
        """Weights that are stored in float16 behind casts are layers too."""
        relu = [helper.make_node("Relu", ["x"], ["y"], name="relu")]
        cast = [
            helper.make_node("Cast", ["w16"], ["w"], name="cast", to=TensorProto.FLOAT),
            helper.make_node("Transpose", ["w"], ["wt"], name="turn", perm=[1, 0]),
            helper.make_node("MatMul", ["x", "wt"], ["y"], name="layer"),
        ]
        ends = [value("x", ["n", 4])], [value("y", ["n", 4])]
        halves: dict[str, Array] = {"w16": np.eye(4, dtype=np.float16)}
        none = read_model(save(model_of(relu, {}, *ends), tmp_path / "relu.onnx"))
        stored = read_model(save(model_of(cast, halves, *ends), tmp_path / "halves.onnx"))

        assert errors_of(target, model, float_candidate) == errors_of(target, model, static_candidate) == []
        assert errors_of(target, stored, rows_candidate) == []
        assert errors_of(target, none, replace(rows_candidate, quantization=Quantization())) == []
        assert errors_of(target, none, rows_candidate) == ["no float32 layer can be INT8"]

    # --- lower -----------------------------------------------------------------------------------------------------

    def test_lowering_is_repeatable_and_leaves_the_model_alone(
        self, model: Model, plain: Form, static: Form, tmp_path: Path
    ) -> None:
        before = {file: file_digest(file) for file in model.path.parent.iterdir() if file.is_file()}

        for name, made in (("float", plain), ("static", static)):
            again = [tmp_path / name / str(i) for i in range(2)]
            files = [lowered(made.target, model, made.candidate, made.record, to) for to in again]
            assert len(set(map(file_digest, files))) == 1
            assert all(file.is_relative_to(to) for file, to in zip(files, again, strict=True))
        assert {file: file_digest(file) for file in model.path.parent.iterdir() if file.is_file()} == before

    def test_a_record_is_of_static_and_this_model(
        self, target: Target, model: Model, plain: Form, static: Form, tmp_path: Path
    ) -> None:
        assert static.record is not None
        foreign = replace(static.record, model_sha256="f" * 64)

        with pytest.raises(TypeError, match="needs record"):
            lowered(target, model, static.candidate, None, tmp_path / "static")
        with pytest.raises(TypeError, match="takes no record"):
            lowered(target, model, plain.candidate, static.record, tmp_path / "float")
        with pytest.raises(LoweringError, match="Calibrate again"):
            lowered(target, model, static.candidate, foreign, tmp_path / "foreign")

    # --- compile ---------------------------------------------------------------------------------------------------

    def test_an_artifact_describes_its_files(
        self, target: Target, model: Model, plain: Form, static: Form, tmp_path: Path
    ) -> None:
        """Serving settings do not change what is compiled."""
        quantized, floats = static.artifact, plain.artifact
        served = replace(static.candidate, serving=Serving(batch=2, intra_op_threads=2))

        assert form(target, model, served, static.record, tmp_path).artifact == quantized
        assert quantized.files
        assert quantized.toolchain == target.toolchain()
        for file in quantized.files:
            assert file_digest(static.directory / file.file) == file.sha256
            assert (static.directory / file.file).stat().st_size == file.size_bytes
        assert static.record is not None
        assert quantized.int8_ops == len(static.record.layers)
        assert quantized.int8_ops + quantized.float_matmuls_left == floats.float_matmuls_left
        assert floats.int8_ops == 0

    def test_a_damaged_file_is_refused_with_a_log(
        self, target: Target, float_candidate: Candidate, tmp_path: Path
    ) -> None:
        damaged = tmp_path / "lowered.onnx"
        damaged.write_bytes(b"not a model at all")
        (tmp_path / "compiled").mkdir()

        with pytest.raises(CompileError) as caught:
            target.compile(damaged, float_candidate, tmp_path / "compiled")

        assert not caught.value.transient
        assert caught.value.log_path is not None
        assert caught.value.log_path.read_text(encoding="utf-8").strip()

    # --- open and run ----------------------------------------------------------------------------------------------

    def test_int8_agrees_with_float_here_and_elsewhere(self, plain: Form, static: Form, tmp_path: Path) -> None:
        moved, feeds = (
            replace(static, directory=shutil.copytree(static.directory, tmp_path / "moved")),
            ids(BATCH, LENGTH),
        )
        with static.open() as session:
            first, second = (session.run(feeds)["logits"] for _ in range(2))
        floats, quantized = plain.outputs(feeds).ravel(), first.ravel()

        assert np.array_equal(first, second)
        assert np.array_equal(first, moved.outputs(feeds))
        assert np.dot(floats, quantized) > 0.99 * np.linalg.norm(floats) * np.linalg.norm(quantized)

    def test_rows_come_back_in_the_order_of_the_feeds_however_many_there_are(self, plain: Form) -> None:
        feeds = ids(BATCH, LENGTH)

        forward = plain.outputs(feeds)
        backward = plain.outputs({name: array[::-1].copy() for name, array in feeds.items()})

        assert forward.shape[0] == BATCH
        assert np.allclose(forward, backward[::-1], atol=1e-5)
        assert not np.allclose(forward, forward[::-1], atol=1e-2)
        if self.dynamic_batch:  # else whoever feeds it pads the last one
            part = plain.outputs({name: array[: BATCH - 1] for name, array in feeds.items()})
            assert np.allclose(forward[: BATCH - 1], part, atol=1e-5)

    def test_a_wrong_feed_is_refused_by_name_and_a_closed_session_at_all(self, plain: Form) -> None:
        right = ids(BATCH, LENGTH)
        session = plain.target.open(plain.artifact, plain.directory, plain.candidate)
        for wrong, fault in (
            ({}, "'ids' is not fed"),
            ({**right, "mask": np.ones((BATCH, LENGTH))}, "no input 'mask'"),
            ({"ids": right["ids"].astype(np.int32)}, "'ids' is fed int32; the model takes int64"),
            ({"ids": right["ids"][0]}, "'ids' is fed shape"),
        ):
            with pytest.raises(MeasureError, match=fault):
                session.run(wrong)
            assert session.run(right)["logits"].shape[0] == BATCH
        session.close()
        session.close()
        with pytest.raises(MeasureError, match="closed"):
            session.run(right)

    def test_no_such_device_and_a_damaged_artifact_are_refused(
        self, target: Target, plain: Form, tmp_path: Path
    ) -> None:
        assert target.devices() >= 1
        with pytest.raises(ToolchainError, match=str(missing := target.devices() + 6)):
            target.open(plain.artifact, plain.directory, plain.candidate, device=missing)

        damaged = replace(plain, directory=tmp_path)
        with pytest.raises(MeasureError, match="cannot load"):
            damaged.open()
        for file in plain.artifact.files:
            content = (plain.directory / file.file).read_bytes()
            (tmp_path / file.file).write_bytes(content[: len(content) // 2])
        with pytest.raises(MeasureError, match="cannot load"):
            damaged.open()

    # --- classes ---------------------------------------------------------------------------------------------------

    def test_values_of_scales_change_no_time(self, target: Target, model: Model, static: Form, tmp_path: Path) -> None:
        """Wider scales of activations, as another algorithm chooses them: zero points stay, and so do kernels."""
        assert static.record is not None
        scales = [(layer, layer.activation) for layer in static.record.layers]
        wider = [
            replace(layer, activation=replace(a, scale=a.scale * 1.25, low=a.low * 1.25, high=a.high * 1.25))
            for layer, a in scales
        ]
        record = replace(static.record, layers=tuple(wider))
        other = form(target, model, static.candidate, record, tmp_path / "wider")
        ours, theirs = static.classes(), other.classes()

        assert ours == static.classes()
        assert ours[0] != theirs[0]
        assert static.artifact.kernels == other.artifact.kernels
        if isinstance(target, StatesForms):  # of others every byte decides
            assert ours[1] == theirs[1]
        if target.toolchain().emulated:  # whose clock has no noise
            assert other.modelled_ms() == static.modelled_ms()

    def test_another_form_of_scales_changes_it(
        self, target: Target, model: Model, plain: Form, static: Form, tmp_path: Path
    ) -> None:
        channels = record_for(model.path, ids(BATCH, LENGTH), per_channel=True)
        candidate = replace(static.candidate, quantization=replace(STATIC, weight_granularity="channel"))
        by_channel = form(target, model, candidate, channels, tmp_path / "channels")
        serving = replace(static.candidate.serving, intra_op_threads=2)
        threads = replace(static, candidate=replace(static.candidate, serving=serving))

        assert len({made.classes()[1] for made in (static, by_channel, plain, threads)}) == 4

    # --- probe -----------------------------------------------------------------------------------------------------

    def test_a_probe_gives_float_tensors(
        self, target: Target, model: Model, float_candidate: Candidate, static: Form, tmp_path: Path
    ) -> None:
        """Of a quantized model what its layers compute."""
        proto, feeds, names = load_graph(model), ids(BATCH, LENGTH), ["norm_y", "query_t_y", "logits"]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names[:2])
        expected = dict(zip(names, run(proto, feeds, names), strict=True))
        files = [
            lowered(target, model, candidate, record, tmp_path / f"lowered-{candidate.quantization.scheme}")
            for candidate, record in ((float_candidate, None), (static.candidate, static.record))
        ]

        with contextlib.closing(target.probe(files[0], [*names, "ids", "absent", "norm_y"])) as session:
            got = session.run(feeds)
        quantized = target.probe(files[1], ["norm_y", "query_y"]).run(feeds)

        assert got.keys() == expected.keys()
        for name, array in expected.items():
            assert got[name].dtype == np.float32
            assert np.allclose(array, got[name], atol=1e-4), name
        plain = np.asarray(expected["norm_y"], np.float32)
        assert 0 < np.abs(np.subtract(plain, quantized["norm_y"], dtype=np.float32)).mean() < 0.1 * np.abs(plain).mean()

    def test_a_file_that_is_no_model_cannot_be_probed(self, target: Target, tmp_path: Path) -> None:
        (tmp_path / "lowered.onnx").write_bytes(b"not a model at all")

        with pytest.raises(MeasureError, match="cannot load"):
            target.probe(tmp_path / "lowered.onnx", ["norm_y"])


class HostConformance(TargetConformance):
    """What the targets that compute on this machine's CPU must do besides. The module gives a fixture `encoder`."""

    weight_steps = 1
    """Of 8 bits that a weight's integers are apart here."""
    left_in_float = 3
    """Of the layers at their extremes, those that have no exact kernel here at most."""

    @pytest.fixture(scope="class")
    @classmethod
    def model_path(cls, encoder: Path) -> Path:
        return encoder

    def test_a_quantized_model_is_warned_about(
        self, target: Target, model_path: Path, static_candidate: Candidate, tmp_path: Path
    ) -> None:
        dynamic = save(lower_dynamic(onnx.load(model_path), "tensor"), tmp_path / "dynamic.onnx")
        nodes = [
            helper.make_node("ConvInteger", ["q", "kernel"], ["c"], name="conv"),
            helper.make_node("Cast", ["c"], ["y"], name="cast", to=TensorProto.FLOAT),
        ]
        q, y = value("q", ["n", 4, 2, 2], TensorProto.UINT8), value("y", ["n", 4, 2, 2])
        integer = model_of(nodes, {"kernel": np.ones((4, 4, 1, 1), np.uint8)}, [q], [y])

        for path in (dynamic, save(integer, tmp_path / "integer.onnx")):
            issues = target.check(read_model(path), static_candidate)
            assert [i.severity for i in issues if i.problem == "the model is quantized already"] == ["warning"]

    def test_a_precision_mode_of_another_target_is_refused(self, float_candidate: Candidate) -> None:
        with pytest.raises(ConfigError, match="'int4'"):
            replace(float_candidate, precision=Precision(mode="int4"))

    def test_it_computes_what_the_integers_say(self, target: Target, rows_candidate: Candidate, tmp_path: Path) -> None:
        random = np.random.default_rng(5)
        x, w = random.normal(size=(8, 32)).astype(np.float32), random.normal(size=(32, 24)).astype(np.float32)
        b = random.normal(size=24).astype(np.float32)
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="layer"),
            helper.make_node("Add", ["b", "h"], ["y"], name="bias"),
        ]
        proto = model_of(nodes, {"w": w, "b": b}, [value("x", ["n", 32])], [value("y", ["n", 24])])
        model = read_model(save(proto, tmp_path / "model.onnx"))
        record = record_for(model.path, {"x": x}, per_channel=True)
        (layer,) = record.layers

        made = form(target, model, rows_candidate, record, tmp_path)
        with made.open() as session:
            got = session.run({"x": x})["y"]

        assert layer.weight is not None
        x_scale, w_scale = np.float32(layer.activation.scale), np.asarray(layer.weight.scales, np.float32)
        zero_point = layer.activation.zero_point
        x_integers = np.clip(np.rint(x / x_scale) + zero_point, -128, 127).astype(np.int64)
        w_scale = w_scale * np.float32(self.weight_steps)
        w_integers = np.clip(np.rint(w / w_scale), -128, 127).astype(np.int64)
        expected = ((x_integers - zero_point) @ w_integers) * (x_scale * w_scale) + b
        assert (made.artifact.int8_ops, made.artifact.float_matmuls_left) == (1, 0), made.artifact.kernels
        assert np.allclose(expected, got, rtol=1e-5, atol=1e-4)

    @pytest.mark.parametrize("conv_outputs", [False, True], ids=["float results", "8-bit results"])
    @pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
    def test_sums_of_operands_at_their_extremes_are_exact(
        self, target: Target, rows_candidate: Candidate, tmp_path: Path, per_channel: bool, conv_outputs: bool
    ) -> None:
        """Every kind of layer, on values that quantization leaves as they are; so the float model's sums are right."""
        proto, record, feeds = extreme_layers(per_channel=per_channel, conv_outputs=conv_outputs)
        model = read_model(save(proto, tmp_path / "model.onnx"))
        record = replace(record, model_sha256=model.sha256)
        candidate = replace(rows_candidate, quantization=replace(STATIC, attention_matmul=True))
        steps = {layer.layer: layer.output.scale for layer in record.layers if layer.output is not None}

        artifact, directory = compiled(target, model, candidate, record, tmp_path)
        session = target.open(artifact, directory, candidate)

        assert artifact.int8_ops >= len(record.layers) - self.left_in_float, artifact.kernels
        for batch in feeds:
            wanted = dict(zip(names := [f"{name}_y" for name in LAYERS], run(proto, batch, names), strict=True))
            got = session.run(batch)
            for name in LAYERS:
                expected = wanted[f"{name}_y"].astype(np.float64)
                error = np.abs(expected - got[f"{name}_y"].astype(np.float64)).max()
                assert error <= max(steps.get(name, 0), 2e-6 * np.abs(expected).max()), (name, error)
        session.close()


LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "column": ((64,), (64, 1), 1),
    "odd": ((7,), (7, 3), 1),
    "scores": ((5, 64), (64, 6), 1),
    "wide": ((5, 768), (768, 40), 1),
    "pointwise": ((64, 5, 5), (16, 64, 1, 1), 1),
    "three": ((16, 6, 6), (24, 16, 3, 3), 1),
    "grouped": ((16, 6, 6), (24, 4, 3, 3), 4),
    "depthwise": ((16, 6, 6), (16, 1, 3, 3), 16),
    "several": ((8, 6, 6), (16, 1, 3, 3), 8),
    "line": ((40, 9), (16, 40, 3), 1),
}
"""Name → (shape of a sample, of the second operand, groups). The second of "scores" is an activation; the first has no
zero point there, since a target may give it another scale otherwise."""


def extreme_layers(
    *, per_channel: bool, conv_outputs: bool
) -> tuple[onnx.ModelProto, QuantizationRecord, list[dict[str, Array]]]:
    """Layers side by side, a record whose integers are their values, and feeds.

    Weights are even steps, so that 7 bits hold them; those of the first channel are all 126, half of the rest -128.
    Activations are 0, 1, 254 and 255 steps above the lowest.
    """
    random = np.random.default_rng(3)
    nodes, weights, records, inputs, outputs = [], {}, [], [], []
    feeds: list[dict[str, Array]] = [{} for _ in range(4)]
    for index, (name, (shape, second, groups)) in enumerate(LAYERS.items()):
        conv, x, y, w = len(second) > 2, f"{name}_x", f"{name}_y", f"{name}_w"
        nodes.append(helper.make_node("Conv" if conv else "MatMul", [x, w], [y], name=name))
        if conv:
            nodes[-1].attribute.append(helper.make_attribute("group", groups))
        inputs.append(value(x, ["n", *shape]))
        outputs.append(value(y, ["n", *(f"{y}_{i}" for i in range(len(shape)))]))
        axis, zero_point, step = (0 if conv else 1), (-128, 3)[index % 2], 2.0**-4
        low, high = (-128 - zero_point) * step, (127 - zero_point) * step
        scale = ActivationScale(tensor=x, scale=step, zero_point=zero_point, low=low, high=high)
        for place, batch in enumerate(feeds):
            steps = random.choice([0, 1, 254, 255] if place else [255], size=(3, *shape))
            batch[x] = (low + steps * step).astype(np.float32)
        of_weight = of_second = None
        if name == "scores":
            inputs.append(value(w, ["n", *second]))
            of_second = ActivationScale(tensor=w, scale=step, zero_point=0, low=-127 * step, high=127 * step)
            for place, batch in enumerate(feeds):
                batch[w] = (random.choice([-127, 126, 127] if place else [127], size=(3, *second)) * step).astype(
                    np.float32
                )
        else:
            channels = second[axis]
            scales = 2.0 ** -(np.arange(channels) % 3 + 3.0) if per_channel else np.array([0.125])
            along = [-1 if i == axis else 1 for i in range(len(second))]
            integers = random.choice([126, -128], size=second)
            integers[(0,) if axis == 0 else (slice(None), 0)] = 126
            weights[w] = (integers * scales.reshape(along)).astype(np.float32)
            of_weight = WeightScale(scales=tuple(scales.tolist()), axis=axis if per_channel else None)
        output = None
        if conv and conv_outputs:
            largest = float(np.abs(weights[w]).sum(axis=tuple(range(1, len(second)))).max()) * max(-low, high)
            output = ActivationScale(
                tensor=y, scale=largest / 100, zero_point=0, low=-1.28 * largest, high=1.27 * largest
            )
        records.append(
            LayerRecord(
                layer=name,
                op_type=nodes[-1].op_type,
                activation=scale,
                weight=of_weight,
                second=of_second,
                output=output,
            )
        )
    return model_of(nodes, weights, inputs, outputs), record_with(*records), feeds
