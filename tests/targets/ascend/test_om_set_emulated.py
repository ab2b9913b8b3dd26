"""The compile step against the emulated atc, from ONNX file to OM files: a program of its own, started like CANN's."""

from dataclasses import dataclass
from pathlib import Path

import onnx
import psutil
import pytest

from tests.emulated_cann import emulated_environment
from tests.targets.encoder import PRODUCTS, WEIGHT_LAYERS, ids, record_for, save, tiny_encoder
from workbench.cann_emulator.om import OfflineModel, load_om
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.targets.ascend.interface import Interface, Port, interface_of
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.om_set import CompiledSet, compile_set
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import Candidate, Precision, Quantization
from workbench.values.errors import CompileError

FLOAT = Quantization()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """An emulated CANN and two forms of one encoder."""

    environment: dict[str, str]
    float_model: Path
    int8_model: Path
    interface: Interface

    def compile(
        self,
        to: Path,
        settings: AscendCompile,
        *,
        mode: str = "force_fp16",
        quantization: Quantization = FLOAT,
        model: Path | None = None,
        interface: Interface | None = None,
        **environment: str,
    ) -> CompiledSet:
        to.mkdir(parents=True, exist_ok=True)
        return compile_set(
            model or (self.float_model if quantization.scheme == "none" else self.int8_model),
            Candidate(
                target="ascend910b3", precision=Precision(mode=mode), quantization=quantization, compile=settings
            ),
            interface or self.interface,
            to,
            soc_version="Ascend910B3",
            environment={**self.environment, **environment},
            parallel=2,
        )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    plain = save(tiny_encoder(), folder / "model.onnx")
    record = record_for(plain, ids(4, 7), symmetric=True, products=True)
    deploy = atc_form(lower_deploy(load_graph(read_model(plain)), record))
    onnx.save(deploy, folder / "int8.onnx")
    return Bench(
        environment=emulated_environment(folder),
        float_model=plain,
        int8_model=folder / "int8.onnx",
        interface=interface_of(read_model(plain)),
    )


@pytest.fixture(scope="module")
def plain(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> tuple[CompiledSet, Path]:
    to = tmp_path_factory.mktemp("plain")
    return bench.compile(to, AscendCompile(batches=(1, 2), sequence_bins=(16,))), to


def opened(to: Path, name: str) -> OfflineModel:
    return load_om(to / name)


def test_gears_are_one_file_with_every_shape(bench: Bench, tmp_path: Path) -> None:
    settings = AscendCompile(batches=(1, 2), sequence_bins=(16, 32), shapes="gears")

    made = bench.compile(tmp_path, settings)

    (file,) = made.files
    assert (file.file, file.batch, file.sequence_bin) == ("gears.om", None, None)
    model = opened(tmp_path, file.file)
    assert model.gear_kind == "dynamic_dims"
    assert {gear.dims for gear in model.gears} == {(1, 16), (1, 32), (2, 16), (2, 32)}


def test_an_input_that_the_model_lacks_is_named(bench: Bench, tmp_path: Path) -> None:
    """Beside every input's own shape; alone it leaves the model's axes open, which ATC tells first."""
    ports = [Port(name=name, dtype="int64", shape=("batch", "sequence")) for name in ("ids", "idz")]
    settings = AscendCompile(sequence_bins=(16,))

    with pytest.raises(CompileError, match=r"\(E10016\): a name that was given is not in the model: idz"):
        bench.compile(tmp_path / "to", settings, interface=Interface(inputs=tuple(ports), outputs=()))
    with pytest.raises(CompileError, match=r"\(E10001\): the model has dynamic axes and not every input was given"):
        bench.compile(tmp_path / "to", settings, interface=Interface(inputs=(ports[1],), outputs=()))


def test_a_model_below_a_path_with_blanks_compiles_with_its_external_weights(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "my models + weights"
    folder.mkdir()
    proto = onnx.load(bench.float_model)
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location="m.weights", size_threshold=0)
    assert (folder / "m.weights").is_file()

    made = bench.compile(folder / "to", AscendCompile(sequence_bins=(16,)), model=folder / "m.onnx")

    assert made.float_matmuls_left == len(WEIGHT_LAYERS) + len(PRODUCTS)
    assert (folder / "to" / "b1_s16.om").stat().st_size > 0


def test_nothing_is_left_behind(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    home = tmp_path / "home"
    home.mkdir()

    bench.compile(tmp_path / "to", AscendCompile(sequence_bins=(16,)), HOME=str(home))

    assert list(temporary.iterdir()) == []
    assert list(home.rglob("*")) == []
    assert sorted(p.name for p in (tmp_path / "to").iterdir()) == ["b1_s16.log", "b1_s16.om", "json.log"]
    assert not [child for child in psutil.Process().children(recursive=True) if "atc" in " ".join(child.cmdline())]
