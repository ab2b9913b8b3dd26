"""The journal's small files go to a node that does not see them, and come back from it. Needs no Ray."""

import base64
from pathlib import Path

import pytest

from tests.evaluations import evaluation
from tests.tiny import write_workspace
from workbench.evaluation.journal import Journal
from workbench.evaluation.shared_inputs import publish_inputs
from workbench.evaluation.shared_store import open_shared_store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import read_experiment
from workbench.search.executors.ray.elsewhere import Copy, Mirror, elsewhere, placed
from workbench.values.documents.sealed_json import read_sealed, write_sealed
from workbench.values.errors import ToolchainError


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
