"""A target of somebody else's, installed as any distribution is: every command works with it."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.serve.making import running
from tests.tiny import EXPERIMENT, FEATURES, write_workspace

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[3]
PACKAGE = HERE / "onnx_reference"
SUITE = """
import pytest
from onnx_reference.target import ReferenceTarget
from workbench.testing.conformance import HostConformance
from workbench.testing.encoder import save, tiny_encoder
from workbench.values.candidate import Candidate

@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save(tiny_encoder(), tmp_path_factory.mktemp("encoder") / "model.onnx")

class TestReference(HostConformance):
    left_in_float = 6

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls):
        return ReferenceTarget()

    @pytest.fixture(scope="class")
    @classmethod
    def float_candidate(cls):
        return Candidate(target="onnxreference")
"""


@dataclass(frozen=True, kw_only=True)
class Workspace:
    experiment: Path
    environment: dict[str, str]

    def run(self, *command: object) -> str:
        """What a command prints; it must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", *map(str, command)],
            cwd=self.experiment.parents[1],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The target as pip installs it, beside a distribution whose target cannot be imported."""
    root = tmp_path_factory.mktemp("third_party")
    (root / "source").mkdir()
    shutil.copy(HERE / "pyproject.toml", root / "source")
    shutil.copytree(PACKAGE, root / "source" / "onnx_reference", ignore=shutil.ignore_patterns("__pycache__"))
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--quiet")
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(root / "site"), str(root / "source")]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    broken = root / "site" / "broken_target-2.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-target\nVersion: 2.0\n")
    (broken / "entry_points.txt").write_text("[workbench.targets]\nbroken = a_package_that_is_not_there:TARGET\n")
    experiment = write_workspace(
        root / "workspace",
        experiment=EXPERIMENT.replace("trials: 6", "trials: 3"),
        space=(HERE / "search_space.yaml").read_text(encoding="utf-8"),
    )
    path = os.pathsep.join((str(root / "site"), str(ROOT)))
    return Workspace(experiment=experiment, environment={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"})


@pytest.fixture(scope="module")
def bundle(installed: Workspace) -> Path:
    """What a sweep of three candidates and an export leave behind."""
    said = installed.run("workbench", "sweep", installed.experiment)
    assert "3/3" in said
    assert "ONNX reference, INT8 static" in said
    installed.run("workbench", "export", installed.experiment, "--to", "bundle")
    return installed.experiment.parents[1] / "bundle"


def test_its_source_is_short_and_the_page_about_extending_shows_it() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    sources = [*sorted(PACKAGE.glob("*.py")), HERE / "pyproject.toml", HERE / "search_space.yaml"]

    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in PACKAGE.glob("*.py")) <= 150
    for file in sources:
        assert file.read_text(encoding="utf-8").strip() in page, file.name


def test_the_doctor_finds_it_and_a_space_and_a_plan_know_its_dimensions(installed: Workspace) -> None:
    space = installed.run("workbench", "space", installed.experiment.parents[1] / "search_spaces" / "tiny.yaml")
    plan = json.loads(installed.run("workbench", "plan", installed.experiment, "--json"))

    doctor = installed.run("workbench", "doctor")

    assert "target onnxreference" in doctor
    assert "Target 'broken' of broken-target 2.0 cannot be loaded" in doctor  # and disturbs no other
    assert "compile.inferred_shapes" in space
    assert "onnx.shape_inference.infer_shapes" in space
    assert plan["space"]["candidates"] == 6


def test_its_winner_is_verified_and_served(installed: Workspace, bundle: Path) -> None:
    assert "golden samples replayed" in installed.run("workbench", "verify", bundle)
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["candidate"]["target"] == "onnxreference"

    with running(bundle, PYTHONPATH=installed.environment["PYTHONPATH"]) as service:
        reply = service.predict({"inputs": {"x": [[0.5] * FEATURES]}})
        assert reply.status == 200, reply.body
        assert "onnxreference" in str(service.request("GET", "/info").body)


def test_it_passes_the_conformance_suite(installed: Workspace) -> None:
    suite = installed.experiment.parents[1] / "test_reference.py"
    suite.write_text(SUITE, encoding="utf-8")

    said = installed.run("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", suite)

    assert re.search(r"\d+ passed", said)
