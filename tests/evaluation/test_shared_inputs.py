"""An experiment that another machine reads from a shared store is the same one."""

import shutil
from pathlib import Path

import onnx
import pytest

from tests.evaluation.shared_places import put
from tests.tiny import write_workspace
from workbench.evaluation.shared_inputs import materialize_inputs, publish_inputs
from workbench.evaluation.shared_store import SharedStore, open_shared_store
from workbench.inputs.experiment import read_experiment
from workbench.values.errors import ToolchainError

MANIFEST = """
version: 1
task: classification
loader: code/samples.py:samples
metric: code/metric.py:score
"""
SAMPLES = """
from pathlib import Path
import numpy as np
from helpers.shuffle import order

HERE = Path(__file__).parent

def samples(split):
    rows = np.load(HERE / "arrays" / f"{split}.npz")
    for i in order(len(rows["label"]), (HERE / "seed.txt").read_text()):
        yield {"x": rows["x"][i]}, int(rows["label"][i])
"""
SHUFFLE = """
import numpy as np

def order(count, seed):
    return np.random.default_rng(int(seed)).permutation(count).tolist()
"""
METRIC = """
def score(outputs, targets, reference=None):
    return [float(o.argmax() == t) for o, t in zip(outputs["logits"], targets)]
"""


@pytest.fixture
def shared(tmp_path: Path) -> SharedStore:
    (tmp_path / "team").mkdir()
    return open_shared_store(str(tmp_path / "team"))


def with_loader(home: Path) -> Path:
    """A workspace with everything that is hard to carry: external data, code with modules, data and folders of its own,
    an absolute path, and a link."""
    file = write_workspace(home)
    data = home / "data"
    model = onnx.load(data / "model.onnx")
    onnx.save(model, data / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    (data / "code/helpers").mkdir(parents=True)
    (data / "code/arrays").mkdir()
    for split in ("calibration", "validation", "holdout"):
        (data / f"{split}.npz").rename(data / f"code/arrays/{split}.npz")
    (data / "code/samples.py").write_text(SAMPLES)
    (data / "code/helpers/shuffle.py").write_text(SHUFFLE)
    (data / "code/helpers/__init__.py").write_text("")
    (data / "code/seed.txt").write_text("7")
    (data / "code/secret-of-nobody-named.txt").write_text("stays here")
    (data / "code/metric.py").write_text(METRIC)
    (data / "manifest.yaml").write_text(MANIFEST)
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    (home / "search_spaces/tiny.yaml").rename(elsewhere / "space.yaml")
    (home / "search_spaces/tiny.yaml").symlink_to(elsewhere / "space.yaml")
    file.write_text(file.read_text().replace("../data/model.onnx", str(data / "model.onnx")))
    return file


def test_everything_an_experiment_needs_is_laid_out_elsewhere(tmp_path: Path, shared: SharedStore) -> None:
    home = tmp_path / "deep/home"
    here = read_experiment(with_loader(home))
    name = publish_inputs(here, shared)
    shutil.rmtree(tmp_path / "deep")
    node = tmp_path / "node"

    file = materialize_inputs(shared, name, node)
    there = read_experiment(file, node)

    assert there.identity == here.identity
    assert there.baseline.id == here.baseline.id
    assert list(node.rglob("secret-*")) == []
    assert materialize_inputs(shared, name, node) == file
    assert publish_inputs(there, shared) == name
    assert str(tmp_path / "deep") not in file.read_text()


def test_a_prepared_model_goes_along(tmp_path: Path, shared: SharedStore) -> None:
    file = write_workspace(tmp_path / "home")
    model = onnx.load(tmp_path / "home/data/model.onnx")
    model.opset_import[0].version = 12
    onnx.save(model, tmp_path / "home/data/model.onnx")
    here = read_experiment(file)
    assert here.model.origin is not None
    name = publish_inputs(here, shared)
    shutil.rmtree(tmp_path / "home")
    node = tmp_path / "node"

    laid = materialize_inputs(shared, name, node)
    made = {path: path.stat().st_mtime_ns for path in (node / ".workbench/models").rglob("*") if path.is_file()}

    assert read_experiment(laid, node).identity == here.identity
    assert {path: path.stat().st_mtime_ns for path in made} == made


def test_inputs_that_were_changed_in_the_store_are_not_laid_out(tmp_path: Path, shared: SharedStore) -> None:
    name = publish_inputs(read_experiment(write_workspace(tmp_path / "home")), shared)
    listing = shared.listing("inputs", name)
    sha256 = listing["files/experiments/tiny.yaml"].sha256
    other = (tmp_path / "home/experiments/tiny.yaml").read_bytes().replace(b"samples: 32", b"samples: 16")
    put(shared, f"v1/files/{sha256[:2]}/{sha256}", other)

    with pytest.raises(ToolchainError, match=r"are damaged \(files/experiments/tiny.yaml"):
        materialize_inputs(shared, name, tmp_path / "node")
    with pytest.raises(ToolchainError, match="has no inputs"):
        materialize_inputs(shared, "0" * 64, tmp_path / "node")
    with pytest.raises(ToolchainError, match="is no name"):
        materialize_inputs(shared, "../../x", tmp_path / "node")
    assert [path.name for path in (tmp_path / "node/.workbench/inputs").iterdir()] == []


def test_a_store_that_is_away_is_waited_for_and_then_named(tmp_path: Path) -> None:
    away = open_shared_store(str(tmp_path / "not-mounted"))

    with pytest.raises(ToolchainError, match="no other machine can take part"):
        publish_inputs(read_experiment(write_workspace(tmp_path / "home")), away, wait_s=0.0)
    with pytest.raises(ToolchainError, match="no other machine can take part"):
        materialize_inputs(away, "0" * 64, tmp_path / "node", wait_s=0.0)
