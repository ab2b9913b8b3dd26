"""The examples of models that read no texts: every shipped file parses, and what is installed gives samples."""

import importlib.util
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench.inputs.dataset.interface_reader import read_interface
from workbench.space.reader import read_space
from workbench.values.documents.yaml_reader import read_yaml

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "digits-mobilenet",
    "digits-resnet",
    "face-rfb320",
    "g2p",
    "ocr-direction",
    "ocr-lines",
    "ocr-pages",
    "piper-voice",
    "silero-vad",
    "speaker",
)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_s_files_belong_together(name: str) -> None:
    with read_yaml(ROOT / f"experiments/{name}.yaml") as top:
        top.leave_the_rest()
        assert top.text("name") == name
        assert top.file_path("dataset", must_exist=False) == ROOT / f"calibration/{name}.yaml"
        assert top.file_path("model", must_exist=False) == ROOT / f".workbench/real-models/{name}/model.onnx"
        assert read_space(top.file_path("search_space")).parameters
    read_interface(ROOT / f"calibration/{name}.yaml")
    assert f"`{name}.yaml`" in (ROOT / "experiments/models.md").read_text("utf-8")


@pytest.mark.parametrize("file", sorted((ROOT / "calibration").glob("*_samples.py")), ids=lambda file: file.stem)
def test_samples_are_made_again_alike(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    try:
        spec.loader.exec_module(module)
        first, second = (list(itertools.islice(module.samples("calibration"), 2)) for _ in range(2))
    except ImportError as error:
        pytest.skip(f"needs a package: {error}")
    except FileNotFoundError as error:
        pytest.skip(f"needs a program: {error}")
    except RuntimeError as error:
        pytest.skip(f"needs what the file says: {error}")
    for (feeds, target), (again, same) in zip(first, second, strict=True):
        assert target == same
        assert feeds.keys() == again.keys()
        for name, array in feeds.items():
            np.testing.assert_array_equal(array, again[name])
            assert np.asarray(array).dtype in (np.float32, np.int64)
