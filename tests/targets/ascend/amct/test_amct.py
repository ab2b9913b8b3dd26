"""Driving amct_onnx in its own process: the emulator's, whole, and broken ones."""

import ast
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.data import AMCT, AMCT_CASES
from tests.quantization.deploy_models import data, golden_batches, golden_float_model, mlp
from workbench.cann_emulator.tree import search_paths, write_tree
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.amct.cfg import parse_cfg
from workbench.quantization.amct.config import recipe_of_config
from workbench.quantization.amct.record_file import record_text
from workbench.quantization.calibrate import follow_amct
from workbench.quantization.lowering.normalize import normalized
from workbench.targets.ascend.amct.amct import AmctCalibrator, calibrate_with_amct, simulation_difference
from workbench.targets.ascend.amct.process import AmctInstallation, find_amct
from workbench.targets.ascend.settings import AscendCompile
from workbench.testing.encoder import ids, save, tiny_encoder
from workbench.values.candidate import Candidate, Precision, Quantization
from workbench.values.errors import CalibrationError, ToolchainError
from workbench.values.model import Model

ROOT = Path(__file__).parents[4]


def variables(*places: Path) -> dict[str, str]:
    """This environment with these modules, and this interpreter named for AMCT."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WORKBENCH_"))}
    path = os.pathsep.join(map(str, places))
    return plain | {"PYTHONPATH": path, "WORKBENCH_AMCT_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}


def broken_variables(folder: Path, source: str) -> dict[str, str]:
    """With another `amct_onnx`, whose module is `source`."""
    (folder / "amct_onnx").mkdir(parents=True)
    (folder / "amct_onnx" / "__init__.py").write_text(source, encoding="utf-8")
    return variables(folder)


WORKING = """
import json, os, signal, sys, time
AMCT_SO = object()
__version__ = "8.5.0"
def create_quant_config(config_file, model_file, config_defination):
    open(config_file, "w").write(json.dumps({"batch_num": 1}))
"""
"""The beginning of an amct_onnx that imports, and fails later."""


CFG = "batch_num: 2"
CHILD = Path(sys.modules["workbench.targets.ascend.amct.amct"].__file__ or "").with_name("child.py")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> AmctInstallation:
    tree = write_tree(tmp_path_factory.mktemp("cann") / "root")
    found = find_amct(variables(*search_paths(tree)["PYTHONPATH"], ROOT))
    assert found is not None
    return found


def broken(folder: Path, source: str) -> AmctInstallation:
    """An installation that was whole when it was found, and is not any more."""
    return AmctInstallation(
        python=Path(sys.executable),
        versions={"amct_onnx": "8.5.0", "onnx": "1.14.0", "onnxruntime": "1.16.0"},
        variables=broken_variables(folder, source),
    )


def mlp_model(folder: Path) -> Model:
    return read_model(save(mlp(), folder / "float model.onnx"))


def mlp_batches(count: int = 2) -> list[dict[str, Any]]:
    return [{"x": data((16, 8), batch)} for batch in range(count)]


# --- the whole way -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", AMCT_CASES)
def test_golden_cases_come_back_through_the_driver(case: str, installation: AmctInstallation, tmp_path: Path) -> None:
    """Configuration to the byte, record as our own procedure gives it in every digit, simulation bit for bit."""
    folder = AMCT / case
    proto = golden_float_model(folder)
    model = read_model(save(proto, tmp_path / "float.onnx"))
    batches = [{proto.graph.input[0].name: batch} for batch in golden_batches(folder)]
    cfg = (folder / "quant.cfg").read_text() if (folder / "quant.cfg").is_file() else "batch_num: 3"

    result = calibrate_with_amct(model, cfg, batches, tmp_path / "out", installation=installation, compared=batches)

    assert (tmp_path / "out/config.json").read_text() == (folder / "config.json").read_text()
    layers = quantizable_layers(normalized(load_graph(model)))
    expected = follow_amct(model, recipe_of_config(parse_cfg(cfg), layers), lambda: batches)
    assert record_text(result.record) == record_text(expected)
    written, golden_text = record_text(result.record).split(), (folder / "record.txt").read_text().split()
    assert len(written) == len(golden_text)
    for ours, theirs in zip(written, golden_text, strict=True):
        assert ours == theirs or float(ours) == pytest.approx(float(theirs), rel=2e-6)
    if case in ("G1", "G7", "mlp_dmq"):
        assert simulation_difference(result, batches) == 0.0


def test_the_record_says_who_made_it_and_a_json_is_used_as_it_is(
    installation: AmctInstallation, tmp_path: Path
) -> None:
    """The folder holds whole files only; the model has an IR version that old wheels do not know."""
    proto, to = mlp(), tmp_path / "with blank"
    proto.ir_version = 10
    model = read_model(save(proto, tmp_path / "float model.onnx"))

    result = calibrate_with_amct(model, CFG, mlp_batches(5), to, installation=installation)

    recipe = result.record.provenance.recipe
    assert (result.record.provenance.engine, recipe["producer"], recipe["batch_num"]) == ("amct", "amct_onnx 8.5.0", 2)
    assert str(recipe["amct_onnx.emulator"]).startswith("int8-workbench ")
    files = ("model_deploy_model.onnx", "model_fake_quant_model.onnx", "model_quant.json")
    assert sorted(path.name for path in to.iterdir()) == ["amct.log", "config.json", *files, "record.txt"]
    assert onnx.load(result.deploy_model).ir_version == 6
    assert "---- save_model" in result.log.read_text()
    assert result.record.follows_amct

    settings = json.loads((to / "config.json").read_text())
    settings["fc1"]["quant_enable"] = False
    record = calibrate_with_amct(model, json.dumps(settings), mlp_batches(), to, installation=installation).record

    assert ([layer.layer for layer in record.layers], record.float_layers) == (["fc2"], ("fc1",))
    assert json.loads((to / "config.json").read_text()) == settings


def test_what_amct_cannot_take_is_refused_early_or_with_its_words(
    installation: AmctInstallation, tmp_path: Path
) -> None:
    nowhere, model, to = broken(tmp_path / "site", "raise SystemExit(7)"), mlp_model(tmp_path), tmp_path / "out"
    with pytest.raises(CalibrationError, match=r"asks for 2 batches \(batch_num\), there are 1"):
        calibrate_with_amct(model, CFG, mlp_batches(1), to, installation=nowhere)
    encoder = read_model(save(tiny_encoder(), tmp_path / "e.onnx"))
    old = replace(nowhere, versions={**installation.versions, "onnx": "1.8.0"})
    with pytest.raises(CalibrationError, match=r"opset 17; AMCT's onnx 1\.8\.0 knows 13"):
        calibrate_with_amct(encoder, CFG, [ids(1, 4)], to, installation=old)
    assert list(to.iterdir()) == []

    cfg = 'batch_num: 1\nskip_layers: "nope"'
    with pytest.raises(CalibrationError, match=r"AMCT's create_quant_config failed: ValueError: .*'nope'") as caught:
        calibrate_with_amct(model, cfg, mlp_batches(), to, installation=installation)
    assert (caught.value.transient, caught.value.log_path) == (False, to / "amct.log")
    assert "Traceback" in (to / "amct.log").read_text()
    assert [path.name for path in to.iterdir()] == ["amct.log"]


def test_who_calibrates_is_amct_for_a_configuration_that_its_record_tells_whole(installation: AmctInstallation) -> None:
    def asked(scheme: str, cfg: str | None, calibrator: str | None, found: AmctInstallation | None) -> str | None:
        static = {"algorithm": "ifmr", "activation_symmetric": True, "weight_granularity": "tensor"}
        rest = {**static, "attention_matmul": False, "keep_float": 0} if scheme == "static" else {}
        quantization = Quantization(scheme=scheme, cfg=cfg, calibrator=calibrator, **rest)  # type: ignore[arg-type]  # of a table
        candidate = Candidate(target="ascend910b3", precision=Precision(mode="fp16"), quantization=quantization)
        return AmctCalibrator(installation=found).configuration(replace(candidate, compile=AscendCompile()))

    learned = CFG + " common_config { ada_quantize { } }"
    assert asked("cfg", CFG, None, installation) == asked("cfg", CFG, "amct", installation) == CFG
    for scheme, cfg, found, words in (
        ("static", None, installation, "scheme: cfg"),
        ("cfg", CFG, None, "WORKBENCH_AMCT_PYTHON"),
        ("cfg", learned, installation, "ada_quantize"),
    ):
        assert asked(scheme, cfg, None, found) is asked(scheme, cfg, "workbench", found) is None
        with pytest.raises(CalibrationError, match=words):
            asked(scheme, cfg, "amct", found)


# --- finding it ----------------------------------------------------------------------------------------------------


def test_a_broken_installation_is_named_with_its_remedy(tmp_path: Path) -> None:
    """amct.md §12."""
    import_error = 'raise ImportError("libamct_onnx_ops.so: undefined symbol: RegisterCustomOps")'
    other = "raise AttributeError(\"module 'onnxruntime' has no attribute 'SessionOption'\")"
    for number, (source, message) in enumerate(
        (
            ('raise OSError("now only support onnxruntime 1.16.0")', r"1\.16\.0.*Install an onnxruntime it supports"),
            ("AMCT_SO = None", r"operator library amct_onnx_op is not built.*python3 setup\.py build"),
            (import_error, r"undefined symbol.*Build its operator library"),
            (other, r"SessionOption.*onnxruntime is not installed whole"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"died of SIGSEGV while it imp.*five headers"),
            ("import google_protobuf_of_another_age", r"No module named.*Install the versions that its manual pins"),
            ("import os; print('half a licence', flush=True); os._exit(3)", r"cannot be used in .*: half a licence\."),
        )
    ):
        with pytest.raises(ToolchainError, match=f"(?s){message}"):
            find_amct(broken_variables(tmp_path / str(number), source))


# --- what may happen while it runs ---------------------------------------------------------------------------------


def test_what_goes_wrong_in_the_child_becomes_one_clear_error(tmp_path: Path) -> None:
    model, body = mlp_model(tmp_path), "def quantize_model(*a): "
    half = "open('answer.json', 'wb').write(b'{\\xff'); os._exit(5)"
    unbuilt = "raise RuntimeError(\"No opset import for domain 'amct.customop'\")"
    for number, (source, kind, transient, message) in enumerate(
        (
            ("os.kill(os.getpid(), signal.SIGKILL)", CalibrationError, True, "ended by SIGKILL .* out of memory"),
            ("time.sleep(600)", CalibrationError, True, "quantize_model took longer than 9 s"),
            (half, CalibrationError, False, "with status 5 and without an answer"),
            ("raise RuntimeError('std::bad_alloc')", CalibrationError, False, "ran out of memory in quantize_mo.*hfmg"),
            (unbuilt, ToolchainError, False, "no operator library.*Build its operator library"),
        )
    ):
        installation, to = broken(tmp_path / f"site{number}", WORKING + body + source), tmp_path / str(number)
        limit_s = 9 if "sleep" in source else 600
        with pytest.raises(kind, match=message) as caught:
            calibrate_with_amct(model, CFG, mlp_batches(), to, installation=installation, timeout_s=limit_s)
        assert getattr(caught.value, "transient", False) == transient
        assert [path.name for path in to.iterdir()] == ["amct.log"]


def test_the_child_is_python_37_and_imports_nothing_of_the_workbench() -> None:
    """amct.md §1.6: it runs where AMCT runs."""
    tree = ast.parse(CHILD.read_text(encoding="utf-8"), feature_version=(3, 7))

    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"importlib", "json", "numpy", "onnx", "onnxruntime", "pathlib", "sys", "traceback", "typing"}
