"""MLflow as users meet it: the store on disk, and the runs in it."""

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluations import evaluation
from workbench.evaluation.journal import Journal
from workbench.evaluation.sweep_folders import open_journal
from workbench.report import Summary, summarize
from workbench.tracking import Place, Tracker, open_tracker, place_of, store
from workbench.values.errors import ToolchainError
from workbench.values.objectives import Constraint, Objective
from workbench.values.results import Evaluation, Failure, Stop

NAME = "loans"
BASELINE = evaluation()


def evaluations() -> list[Evaluation]:
    failure = Failure(stage="compile", kind="CompileError", message="no kernel", reproduce="workbench evaluate x")
    stop = Stop(stage="accuracy_subset", reason="too wrong", violations={"accuracy_loss_pp": 0.25})
    return [
        BASELINE,
        evaluation(scheme="static", drop_pp=0.3, accuracy=0.947, p50_ms=2.0, speedup=2.0),
        evaluation(scheme="static", keep_float=2, drop_pp=0.1, accuracy=0.949, p50_ms=2.5, speedup=1.6),
        evaluation(scheme="dynamic", drop_pp=-0.1, accuracy=0.951, p50_ms=3.0, speedup=1.3),
        evaluation(scheme="static", threads=2, stop=stop),
        evaluation(scheme="static", threads=4, failure=failure),
    ]


def judged(found: list[Evaluation], *, confirmed: bool = True) -> Summary:
    return summarize(
        experiment_name=NAME,
        experiment_file="experiments/loans.yaml",
        objectives=(Objective(metric="latency_p50_ms"), Objective(metric="accuracy")),
        constraints=(Constraint(metric="accuracy_loss_pp", limit=0.5),),
        evaluations=found,
        confirmations={
            e.candidate.id: replace(e, split="holdout") for e in found if confirmed and e.status == "complete"
        },
        outcomes=lambda *_: None,
        baseline_id=BASELINE.candidate.id,
    )


@contextlib.contextmanager
def tracker(workspace: Path, name: str = NAME) -> Iterator[Tracker]:
    journal = open_journal(workspace, name, "x", fresh=not (workspace / ".workbench").exists())
    with open_tracker(workspace, name, journal, is_feasible=lambda e: e.status == "complete", about="Ship?") as found:
        yield found


def runs(workspace: Path, chosen: str, name: str = NAME) -> list[Any]:
    with store.mlflow_errors():
        client = store.client_of(place_of(workspace))
        experiment = client.get_experiment_by_name(name)
        assert experiment is not None
        return store.find_runs(client, experiment.experiment_id, chosen)


def swept(workspace: Path, found: list[Evaluation] | None = None, name: str = NAME, **conclusion: Any) -> list[str]:
    found = evaluations() if found is None else found
    with tracker(workspace, name) as writer:
        for one in found:
            writer.evaluated(one, reused=False)
        return writer.conclude(judged(found), plan="6 candidates, 1 min", **conclusion)


def artifacts(run: Any) -> set[str]:
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


# --- what is written -----------------------------------------------------------------------------------------------


def test_a_sweep_is_one_flat_run_per_candidate_with_all_that_is_known_and_one_summary_run(workspace: Path) -> None:
    found, failed = evaluations()[1], evaluations()[5]
    journal = open_journal(workspace, NAME, "x")
    journal.log(failed.candidate.id, "validation").write_text("what the compiler said", encoding="utf-8")
    journal.record(failed.candidate.id, "validation").write_text("{}", encoding="utf-8")
    swept(workspace)

    (run,) = runs(workspace, f"tags.candidate = '{found.candidate.id}'")
    (broken,) = runs(workspace, f"tags.candidate = '{failed.candidate.id}'")
    (summary,) = runs(workspace, "tags.kind = 'sweep'")
    assert len(runs(workspace, "tags.kind = 'candidate'")) == 6
    assert all("mlflow.parentRunId" not in run.data.tags for run in runs(workspace, ""))
    assert run.data.params["quantization.algorithm"] == "minmax"
    assert run.data.params["compile.disabled_fusions"] == "none"
    assert run.data.metrics["latency_p50_ms"] == 2.0
    assert run.data.metrics["holdout_accuracy_loss_pp"] == pytest.approx(0.3)
    wanted = {"pareto": "true", "recommended": "true", "feasible": "true", "emulated": "false", "cached": "false"}
    wanted |= {"status": "complete", "stage_reached": "latency_full", "toolchain": found.toolchain.fingerprint[:12]}
    assert wanted.items() <= run.data.tags.items()
    assert run.info.run_name.startswith(f"★ {found.candidate.short_id[:6]} INT8 static")
    assert artifacts(run) == {"candidate.json", "evaluation.json", "confirmation.json"}
    assert artifacts(broken) == {"candidate.json", "evaluation.json", "log.txt", "record.json"}
    assert broken.info.status == "FAILED"
    assert "CompileError at compile: no kernel" in broken.data.tags["mlflow.note.content"]
    assert artifacts(summary) == {"pareto.html", "report.txt", "report.json", "plan.txt"}
    assert summary.data.tags["mlflow.note.content"].startswith("**Recommended: ")
    assert summary.data.metrics["recommended_speedup"] == pytest.approx(2.0)
    assert summary.data.metrics["front_members"] == 3


def test_models_are_kept_for_front_members_only(workspace: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    (compiled / "model.onnx").write_bytes(b"onnx")
    asked: list[str] = []
    found = evaluations()
    with tracker(workspace) as writer:
        for _ in range(2):
            writer.conclude(judged(found), models=lambda c: asked.append(c.id) or compiled)

    kept = [run for run in runs(workspace, "tags.kind = 'candidate'") if "model/model.onnx" in artifacts(run)]

    assert sorted(run.data.tags["candidate"] for run in kept) == sorted(asked)
    assert {run.data.tags["pareto"] for run in kept} == {"true"}


# --- again, and after a crash --------------------------------------------------------------------------------------


def test_the_same_sweep_again_writes_no_run_twice_and_moves_the_marks(workspace: Path) -> None:
    swept(workspace)
    better = evaluation(scheme="static", keep_float=4, drop_pp=0.1, accuracy=0.949, p50_ms=1.0, speedup=4.0)
    found = [*evaluations(), better]
    with tracker(workspace) as writer:
        for one in found:
            writer.evaluated(one, reused=one is not better)
        writer.conclude(judged(found))

    assert len(runs(workspace, "tags.kind = 'candidate'")) == 7
    assert len(runs(workspace, "tags.kind = 'sweep'")) == 1
    (recommended,) = runs(workspace, "tags.recommended = 'true'")
    assert recommended.data.tags["candidate"] == better.candidate.id
    assert len(runs(workspace, "tags.pareto = 'true'")) == 2
    names = [run.info.run_name for run in runs(workspace, "tags.kind = 'candidate'")]
    assert sorted(name[0] for name in names if name[0] in "★◆") == sorted("★◆")


def test_a_run_that_a_killed_process_left_open_is_finished_in_place(workspace: Path) -> None:
    found = evaluations()[1]
    with tracker(workspace) as writer:
        killed = writer._client.create_run(
            writer.experiment_id, tags={"sweep": writer.sweep_id, "kind": "candidate", "candidate": found.candidate.id}
        )
    with tracker(workspace) as writer:
        writer.evaluated(found, reused=True)

    (run,) = runs(workspace, "tags.kind = 'candidate'")

    assert run.info.run_id == killed.info.run_id
    assert run.info.status == "FINISHED"
    assert run.data.metrics["speedup"] == 2.0


def test_a_candidate_evaluated_anew_replaces_its_numbers_and_the_note_of_its_failure(workspace: Path) -> None:
    out_of_time = Failure(stage="compile", kind="CompileError", message="900 s", reproduce="again", transient=True)
    with tracker(workspace) as writer:
        writer.evaluated(evaluation(failure=out_of_time), reused=False)
        (failed,) = runs(workspace, "tags.kind = 'candidate'")
        writer.evaluated(replace(evaluation(p50_ms=1.9), attempt=2), reused=False)

    (run,) = runs(workspace, "tags.kind = 'candidate'")

    assert (failed.info.status, run.info.status) == ("FAILED", "FINISHED")
    assert "900 s" in failed.data.tags["mlflow.note.content"]
    assert (run.data.tags["mlflow.note.content"], run.data.tags["status"]) == ("", "complete")
    assert run.data.metrics["latency_p50_ms"] == 1.9


def test_two_sweeps_of_one_experiment_stay_apart(workspace: Path) -> None:
    swept(workspace)
    journal = open_journal(workspace, NAME, "another question", fresh=True)
    with open_tracker(workspace, NAME, journal, is_feasible=lambda _: True) as writer:
        writer.evaluated(BASELINE, reused=False)

    assert len(runs(workspace, f"tags.candidate = '{BASELINE.candidate.id}'")) == 2


def test_what_could_not_be_logged_during_the_sweep_is_logged_at_its_end(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = evaluations()
    with tracker(workspace) as writer:
        moved = workspace / "mlruns" / "artifacts"
        moved.rmdir()
        moved.write_text("a file where the folder was", encoding="utf-8")
        for one in found:
            writer.evaluated(one, reused=False)
        assert "tried again when the sweep ends" in caplog.text
        assert len(caplog.records) == 1
        with pytest.raises(ToolchainError, match="MLflow's store failed"):
            writer.conclude(judged(found))
        moved.unlink()
        writer.conclude(judged(found))

    assert {run.info.status for run in runs(workspace, "tags.kind = 'candidate'")} == {"FINISHED", "FAILED"}
    assert len(runs(workspace, "tags.kind = 'candidate'")) == 6


def test_an_experiment_deleted_in_the_ui_comes_back(workspace: Path) -> None:
    swept(workspace)
    with tracker(workspace) as writer:
        writer._client.delete_experiment(writer.experiment_id)

    assert len(swept(workspace)) == 3


# --- a store that cannot be used -----------------------------------------------------------------------------------


def refusal(workspace: Path) -> str:
    with pytest.raises(ToolchainError) as caught, tracker(workspace):
        pass
    return str(caught.value)


def test_a_store_that_is_no_folder_or_a_damaged_database_is_refused_with_what_to_do(
    workspace: Path, tmp_path: Path
) -> None:
    path = workspace / "mlruns" / "mlflow.db"
    for content in (b"x" * 4096, path.read_bytes()[:2048], b""):
        path.write_bytes(content)
        assert "Move it away; the next sweep makes a new one" in refusal(workspace)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mlruns").write_text("", encoding="utf-8")
    assert "mlruns cannot be written" in refusal(tmp_path / "other")
    assert "--workspace" in refusal(tmp_path / "other")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_mlruns_is_refused(workspace: Path) -> None:
    (workspace / "mlruns").chmod(0o555)
    try:
        assert "cannot be written" in refusal(workspace)
    finally:
        (workspace / "mlruns").chmod(0o755)


def test_a_locked_database_is_refused_and_says_by_what(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_WAIT_S", 0.1)  # it is held for longer than anybody waits
    holder = sqlite3.connect(workspace / "mlruns" / "mlflow.db", isolation_level=None)
    with contextlib.closing(holder):
        holder.execute("BEGIN EXCLUSIVE")

        assert "Another process is writing to it" in refusal(workspace)


def test_a_workspace_that_was_copied_is_written_and_read_in_its_new_place_and_the_old_one_stays(
    workspace: Path, tmp_path: Path
) -> None:
    swept(workspace)
    with store.mlflow_errors():  # what somebody keeps elsewhere is left there
        client = store.client_of(place_of(workspace))
        theirs = client.create_run(client.create_experiment("theirs", artifact_location="s3://bucket/mlruns/artifacts"))
    before = {path: path.stat().st_mtime_ns for path in (workspace / "mlruns" / "artifacts").rglob("*")}
    copied = tmp_path / "a copy"
    shutil.copytree(workspace / "mlruns", copied / "mlruns")

    swept(copied, evaluations()[:5])

    places = {run.info.run_id: run.info.artifact_uri for run in runs(copied, "")}
    assert all(place.startswith((copied / "mlruns" / "artifacts").as_uri() + "/") for place in places.values())
    with store.mlflow_errors():
        found = store.client_of(place_of(copied)).get_run(theirs.info.run_id)
    assert found.info.artifact_uri == theirs.info.artifact_uri
    assert all(artifacts(run) for run in runs(workspace, ""))
    assert {path: path.stat().st_mtime_ns for path in (workspace / "mlruns" / "artifacts").rglob("*")} == before


def test_a_new_database_appears_whole_and_leaves_nothing_beside_it(empty_store: Path) -> None:
    assert {p.name.split("-")[0] for p in empty_store.parent.iterdir()} == {"mlflow.db", "artifacts"}
    with contextlib.closing(sqlite3.connect(empty_store)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_the_database_that_is_kept_for_the_next_workspace_is_made_anew_where_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("first", "copied", "after damage"):
        store.prepare(tmp_path / name)
        (kept,) = (tmp_path / "cache" / "workbench" / "mlflow").iterdir()
        if name == "copied":
            kept.write_bytes(kept.read_bytes()[:-5000])
        with store.mlflow_errors():
            found = store.client_of(Place(store=tmp_path / name)).search_experiments()
        assert [one.name for one in found] == ["Default"]
    (tmp_path / "file").write_text("where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    store.prepare(tmp_path / "kept nowhere")


def test_two_trackers_write_to_one_store_at_once(workspace: Path) -> None:
    def write(name: str, journal: Journal) -> None:
        with open_tracker(workspace, name, journal, is_feasible=lambda _: True) as writer:
            for one in evaluations():
                writer.evaluated(one, reused=False)

    threads = [
        threading.Thread(target=write, args=(name, open_journal(workspace, name, "x"))) for name in (NAME, "other")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(runs(workspace, "tags.kind = 'candidate'")) == 6
