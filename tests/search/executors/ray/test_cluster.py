"""A sweep on a cluster of made-up cards loses a card, an actor, its driver and its head, and no candidate."""

import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.standin import installed, space
from tests.standin.nodes import AUTH, Nodes, nodes
from tests.tiny import EXPERIMENT, write_workspace
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.exit_codes import exit_code_of

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'int8-workbench[cluster]'"
    ),
    pytest.mark.timeout(1200),  # several programs, each with patience
]

VARIANTS, PATIENCE_S = 4, 300.0
CARDS = 'STANDIN_HANGS: "1", STANDIN_TIMING_S: "0.4"'
FILE = """
version: 1
address: {address}
timeouts: {{card: 2m, silent: 10s, head: 4s}}
environment: {{{cards}, STANDIN_COMPILE_S: "0.1"}}
{more}
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    nodes: Nodes
    root: Path
    environment: dict[str, str]

    def start(
        self, experiment: Path, more: str = "", cards: str = CARDS, **environment: str
    ) -> "subprocess.Popen[str]":
        file = self.root / f"cluster-{abs(hash(more + cards))}.yaml"
        file.write_text(FILE.format(address=self.nodes.address, more=more, cards=cards), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "workbench", "sweep", str(experiment), "--cluster", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.environment, **environment},
        )

    def ran(self, *command: str) -> str:
        told = [sys.executable, "-m", "workbench", *command]
        return subprocess.check_output(told, text=True, timeout=PATIENCE_S, env={**os.environ, **self.environment})

    def ended(self, process: "subprocess.Popen[str]") -> tuple[int, str]:
        said, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("cluster")
    environment = {**installed(root / "site"), **AUTH, "STANDIN_CARDS": "3"}
    with contextlib.ExitStack() as stack:
        try:
            started = stack.enter_context(nodes(environment))
        except RuntimeError as error:  # Ray gives a node 15 s for its agent, which a busy machine does not
            pytest.skip(f"Ray could not start here: {str(error)[-300:]}")
        if not started.add(cards=3, processors=5):
            pytest.skip("Ray could not start a node here")
        yield Place(nodes=started, root=root, environment=environment)


def _experiment(root: Path) -> Path:
    return write_workspace(root, experiment=EXPERIMENT.replace("trials: 6", "trials: 50"), space=space(VARIANTS))


def _folder(experiment: Path) -> Path:
    return experiment.parents[1] / ".workbench" / "sweeps" / "tiny" / "0001"


def _evaluations(experiment: Path) -> list[dict[str, object]]:
    files = sorted((_folder(experiment) / "evaluations").glob("[0-9a-f]*.json"))
    return [json.loads(file.read_text(encoding="utf-8"))["evaluation"] for file in files]


def _until(done: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)  # between looks at what another process writes


def test_what_can_never_be_had_is_said_at_once(place: Place, tmp_path: Path) -> None:
    experiment = _experiment(tmp_path)
    many = place.start(experiment, "cards: 9")
    other = place.start(_experiment(tmp_path / "other"), STANDIN_VERSION="2.0")

    code, said = place.ended(many)
    assert (code, "9 cards are asked for" in said, "has 3" in said) == (exit_code_of(ConfigError("")), True, True), said
    code, said = place.ended(other)
    assert code == exit_code_of(ToolchainError("")), said
    assert "standin-compiler 1.0 there, 2.0 here" in said
    assert not _evaluations(experiment)


def test_no_candidate_is_lost_with_a_card_an_actor_the_driver_or_the_head(place: Place, tmp_path: Path) -> None:
    experiment = _experiment(tmp_path)
    first = place.start(experiment)
    _until(lambda: len(_evaluations(experiment)) >= 2, first)
    assert place.nodes.kill_actor(random.Random(0))
    _until(lambda: len(_evaluations(experiment)) >= 4, first)
    first.kill()
    first.communicate()
    kept = len(_evaluations(experiment))

    second = place.start(experiment)
    shown = json.loads(place.ran("cluster", place.nodes.address, "--json"))
    code, said = place.ended(second)
    found = _evaluations(experiment)

    assert code == 0, said
    assert f"{2 * VARIANTS - kept} candidates evaluated, {kept} from before" in said
    assert len(found) == 2 * VARIANTS
    assert {(e["status"], e["attempt"]) for e in found} == {("complete", 1)}
    cards = {e["place"]["card"] for e in found if isinstance(e["place"], dict)}
    assert "1" not in cards, "it hangs"
    assert shown["totals"]["cards"] == 3

    third = place.start(_experiment(tmp_path / "third"))
    _until(lambda: len(_evaluations(tmp_path / "third" / "experiments" / "tiny.yaml")) >= 1, third)
    place.nodes.kill_head()
    code, said = place.ended(third)
    assert code == exit_code_of(ToolchainError("")), said
    assert "has not answered for 4 s. Everything measured is kept here" in " ".join(said.split())
