"""What a user may say of a cluster, which nodes are refused, and what travels between them. Needs no Ray."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluations import evaluation
from tests.tiny import write_workspace
from workbench import __version__
from workbench.evaluation.journal import Journal
from workbench.evaluation.shared_inputs import publish_inputs
from workbench.evaluation.shared_store import open_shared_store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import read_experiment
from workbench.search.executors.ray.elsewhere import Copy, Mirror, elsewhere, placed
from workbench.search.executors.ray.nodes import difference
from workbench.search.executors.ray.settings import ClusterSettings, cluster_settings
from workbench.values.artifact import Toolchain
from workbench.values.documents.canonical import encode
from workbench.values.documents.sealed_json import read_sealed, write_sealed
from workbench.values.errors import ConfigError, ToolchainError

FILE = """
version: 1
address: 10.0.0.1:6379
store: s3://team/workbench
cards: 8
processors_per_card: 2
compile: {slots: 4, processors: 2, label: compile}
timeouts: {card: 3m, silent: 30m}
environment: {ASCEND_HOME: /opt}
"""


def test_an_address_or_a_file_says_which_cluster(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE, encoding="utf-8")

    assert cluster_settings("auto") == ClusterSettings(address="auto")
    assert cluster_settings("local:4") == ClusterSettings(address="", local_cards=4)
    assert cluster_settings("head.team:6379").address == "head.team:6379"
    assert cluster_settings(str(file)) == ClusterSettings(
        address="10.0.0.1:6379",
        store="s3://team/workbench",
        cards=8,
        processors_per_card=2,
        compile_slots=4,
        compile_processors=2,
        compile_label="compile",
        card_s=180.0,
        silent_s=1800.0,
        environment={"ASCEND_HOME": "/opt"},
    )


def test_what_is_no_cluster_is_refused_with_a_hint() -> None:
    for text in ("", "here", "local:0", "local:x", "10.0.0.1", "ray://head:10001", "nowhere.yaml"):
        with pytest.raises(ConfigError) as refused:
            cluster_settings(text)
        assert refused.value.hint or "does not exist" in str(refused.value) or "No such file" in str(refused.value)


def test_all_that_is_wrong_in_a_file_is_said_at_once_with_lines(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "version: 1\naddress: nowhere\ncards: 0\ntimeout: 3s\ncompile: {slots: -1, label: 'a b'}\n"
        "environment: {1A: x}\n",
        encoding="utf-8",
    )

    with pytest.raises(ConfigError) as refused:
        cluster_settings(str(file))

    said = str(refused.value)
    for part in ("address", "cards", "timeout", "compile.slots", "compile.label", "environment.1A", "line 3"):
        assert part in said


def test_a_node_that_differs_is_refused_by_component_and_version() -> None:
    here = Toolchain(target="t", components={"compiler": "8.0", "driver": "24.1"}, device="card")

    def said(there: Toolchain, version: str = __version__) -> str:
        return difference({"version": version, "toolchains": {"t": encode(there)}}, {"t": here})

    assert said(here) == ""
    assert said(replace(here, components={"compiler": "8.1", "driver": "24.1"})) == "compiler 8.1 there, 8.0 here"
    assert said(replace(here, components={"compiler": "8.0"})) == "driver none there, 24.1 here"
    assert said(replace(here, device="other")) == "other there, card here"
    assert "emulated there" in said(replace(here, emulated=True))
    assert said(here, version="0.0") == f"workbench 0.0 there, {__version__} here"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_journal(tmp_path / "driver", "tiny", "0" * 64)


def test_a_copy_knows_what_the_driver_wrote_and_gives_back_what_is_new(journal: Journal, tmp_path: Path) -> None:
    before, later = evaluation(), evaluation(threads=2)
    mirror, copy = Mirror(journal), Copy(tmp_path / "node")
    journal.write(before)
    copy.take(mirror.changes())
    journal.write(later)
    changes = mirror.changes()
    copy.take(changes)

    there = Journal(root=copy.root)
    assert there.evaluations() == journal.evaluations()
    assert not [name for name in changes if before.candidate.id in name], "it was sent before"
    assert list(copy.news()) == []

    there.latency(later.candidate.id, "validation").write_bytes(b"times")
    there.anchor("validation", 4, 2.0, keep=True)
    write_sealed(journal.root / "anchors.json", {"validation 8": 3.0})
    for message in copy.news():
        mirror.keep(message)

    assert journal.latency(later.candidate.id, "validation").read_bytes() == b"times"
    anchors = read_sealed(journal.root / "anchors.json")
    assert (anchors["validation 4"], anchors["validation 8"]) == (2.0, 3.0)
    assert list(copy.news()) == []


def test_a_node_writes_nothing_else_into_the_journal(journal: Journal) -> None:
    held = {file: file.read_bytes() for file in journal.root.rglob("*") if file.is_file()}
    beyond = ("../x", "logs/../../x", "logs/..", "logs/.x", "/etc/x")
    for name in (*beyond, "evaluations/x.json", "sweep.json", "study.log"):
        Mirror(journal).keep({"kind": "file", "name": name, "data": base64.b64encode(b"{}").decode()})
        assert {file: file.read_bytes() for file in journal.root.rglob("*") if file.is_file()} == held, name


def test_a_node_uses_the_journal_that_it_sees_and_else_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    question = read_experiment(write_workspace(tmp_path / "driver"))
    journal = open_journal(question.workspace, question.name, question.identity)
    (tmp_path / "shared").mkdir()
    shared = open_shared_store(str(tmp_path / "shared"))
    opening = {
        "journal": str(journal.root),
        "experiment": str(question.path),
        "shared": shared.url,
        **elsewhere(journal, ""),
    }
    far = {**opening, "journal": str(tmp_path / "not there")}

    assert placed(opening, "card") == (opening, None)
    with pytest.raises(ToolchainError, match=r"does not see .* Name one that all machines reach"):
        placed(far, "card")

    told, copy = placed({**far, "inputs": publish_inputs(question, shared)}, "card")
    assert copy is not None
    assert read_experiment(Path(told["experiment"]), Path(told["workspace"])).identity == question.identity
    assert Path(told["journal"]).is_relative_to(tmp_path / "home")
