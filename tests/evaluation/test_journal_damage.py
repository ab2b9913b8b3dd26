"""Damage to a finished sweep: whatever happens to a file, it is named, nothing relies on it, and a sweep mends it."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.search.sweeping import Recorder
from tests.tiny import bench_of, write_workspace
from workbench.api.opening import find_candidate, journal_of, summary_of
from workbench.commands.options import tell_damage_of_last
from workbench.evaluation.bench import Bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.report import detail, lines, to_json
from workbench.report.page import pareto_html
from workbench.search.front import front_of
from workbench.search.sweep import confirm, run_sweep
from workbench.shipping.handover import bundle_contents
from workbench.tracking.run import note
from workbench.values.errors import ToolchainError

KINDS = ("flipped", "cut", "emptied", "zeroed", "replaced", "deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A finished sweep, to be copied, and the store that its candidates come from."""

    question: Experiment
    journal: Journal
    store: Store

    def copy(self, to: Path) -> tuple[Experiment, Bench]:
        shutil.copytree(self.question.workspace / ".workbench" / "sweeps", to / ".workbench" / "sweeps")
        question = replace(self.question, workspace=to)
        return question, bench_of(question, self.store.root)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    question = read_experiment(write_workspace(tmp_path_factory.mktemp("workspace")))
    bench = bench_of(question)
    run_sweep(question, bench, trials=4)
    confirm(question, bench, front_of(question, bench.journal.evaluations()))
    assert bench.journal.damage() == ()
    yield Swept(question=question, journal=bench.journal, store=bench.store)
    bench.store.close()


def sealed_files(journal: Journal) -> list[Path]:
    """Everything that is covered by a digest."""
    files = (path for path in journal.root.rglob("*") if path.is_file() and not path.name.endswith("lock"))
    return sorted(files, key=lambda path: path.relative_to(journal.root))


def damage(path: Path, kind: str, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if kind == "flipped":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[rng.randrange(1, len(data) - 1) :]
    elif kind == "emptied":
        data.clear()
    elif kind == "zeroed":
        data[:] = bytes(len(data))
    elif kind == "replaced":
        data[:] = b'{"version": [], "sha256": {"a": null}}\n'
    path.write_bytes(data)
    if kind == "deleted":
        path.unlink()


def test_every_damage_to_every_file_is_named_and_nothing_that_reads_the_sweep_breaks(
    swept: Swept, tmp_path: Path
) -> None:
    question, bench = swept.copy(tmp_path)
    journal, rng = bench.journal, random.Random(0)
    files = sealed_files(journal)
    assert {path.parent.name for path in files} >= {"evaluations", "confirmations", "outcomes", "latency", "records"}
    sound = {path: path.read_bytes() for path in files}

    for path in files:
        name = path.relative_to(journal.root).as_posix()
        for kind in rng.sample(KINDS, 2):
            damage(path, kind, rng)

            found = journal.damage()
            known = journal.evaluations()
            summary = summary_of(question, journal)

            assert name in {one.file for one in found}, f"{name} {kind}"
            text = lines(summary)
            assert "DAMAGED" in text
            assert name in text.replace("\n    ", "").replace("\n", "")
            assert {one["file"] for one in to_json(summary)["damage"]} == {one.file for one in found}
            for one in found:
                assert one.split != "validation" or one.candidate_id not in known, f"{name} {kind} is relied on"
            assert open_journal(question.workspace, question.name, question.identity) == journal
            path.write_bytes(sound[path])
    assert journal.damage() == ()


def test_files_of_another_candidate_or_sweep_are_found(swept: Swept, tmp_path: Path) -> None:
    question, bench = swept.copy(tmp_path)
    first, second = list(bench.journal.evaluations())[:2]
    for folder, ending in (("latency", ".validation.npz"), ("outcomes", ".validation.npz"), ("evaluations", ".json")):
        one, other = (bench.journal.root / folder / f"{candidate_id}{ending}" for candidate_id in (first, second))
        kept = one.read_bytes(), other.read_bytes()
        one.write_bytes(kept[1])
        other.write_bytes(kept[0])

        found = {one.file for one in bench.journal.damage()}

        assert found == {f"{folder}/{one.name}", f"{folder}/{other.name}"}
        one.write_bytes(kept[0])
        other.write_bytes(kept[1])
    another = open_journal(tmp_path, question.name, question.identity + "0", fresh=True)
    (another.root / "evaluations").mkdir()
    shutil.copy(bench.journal.root / "evaluations" / f"{first}.json", another.root / "evaluations")
    assert another.evaluations() == {}
    assert "belongs to another sweep" in another.damage()[0].words()


def test_a_candidate_with_a_damaged_file_is_not_handed_over_and_the_words_name_the_file(
    swept: Swept, tmp_path: Path
) -> None:
    question, bench = swept.copy(tmp_path)
    journal = bench.journal
    recommended = summary_of(question, journal).recommended
    candidate = find_candidate(recommended.candidate_id, journal)
    journal.outcomes(candidate.id, "holdout").write_bytes(b"")

    with pytest.raises(ToolchainError, match=rf"outcomes/{candidate.id}\.holdout\.npz.*is empty.*again"):
        bundle_contents(question, candidate, bench, journal)
    summary = summary_of(question, journal)
    assert "Damaged:" in note(summary)
    assert 'class="emulated">Damaged' in pareto_html(summary)
    assert "DAMAGED" in detail(summary, candidate.id)
    journal.latency(candidate.id, "validation").unlink()
    with pytest.raises(ToolchainError, match=rf"latency/{candidate.id}.*is missing.*Run the sweep again"):
        find_candidate(candidate.short_id, journal)


def test_the_next_sweep_evaluates_what_was_damaged_again_and_mends_the_rest(swept: Swept, tmp_path: Path) -> None:
    question, bench = swept.copy(tmp_path)
    journal = bench.journal
    before = journal.evaluations()
    flipped, deleted, intact = list(before)[1:4]
    anchors, sweep = ((journal.root / name).read_bytes() for name in ("anchors.json", "sweep.json"))
    damage(journal.root / "evaluations" / f"{flipped}.json", "flipped", random.Random(1))
    (journal.root / "evaluations" / f"{deleted}.json").unlink()
    for name in ("anchors.json", "sweep.json", "queue.json"):
        (journal.root / name).write_bytes(b"")
    recorder = Recorder()

    found = journal.set_aside()
    end = run_sweep(question, bench, trials=4, listeners=(recorder,))

    assert len(found) == 5
    assert (end.new, end.reused) == (2, 2)
    assert {e.candidate.id for e, reused in recorder.seen if not reused} == {flipped, deleted}
    assert journal.damage() == ()
    after = journal.evaluations()
    assert set(after) == set(before)
    assert after[intact] == before[intact]
    assert (journal.root / "sweep.json").read_bytes() == sweep
    assert (journal.root / "anchors.json").read_bytes() == anchors
    assert {path.name for path in (journal.root / "damaged").iterdir()} >= {"queue.json", f"evaluations-{flipped}.json"}


def test_the_more_is_damaged_the_more_is_said(swept: Swept, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question, bench = swept.copy(tmp_path)
    root = bench.journal.root
    tell_damage_of_last(tmp_path, question.name)
    assert capsys.readouterr().err == ""
    (root / "anchors.json").unlink()
    tell_damage_of_last(tmp_path, question.name)  # of commands that show no report
    said = capsys.readouterr().err
    assert "warning: damaged sweep" in said
    assert "anchors.json (how fast the machine was when the sweep began) is missing" in said

    for path in (root / "evaluations").iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ToolchainError, match=r"(?s)No sound evaluation is left in .*evaluations/.*workbench sweep"):
        journal_of(question)
    assert set(bench.journal.lost()) == set(swept.journal.evaluations())

    for path in (root / "sweep.json", root / "contents.json", *root.glob("*ations/*.json")):
        path.write_bytes(b"\0" * 10)
    with pytest.raises(ToolchainError, match=r"sweep\.json .*nothing but zeros.*--fresh"):
        open_journal(tmp_path, question.name, question.identity)
    assert open_journal(tmp_path, question.name, question.identity, fresh=True).root.name == "0002"
