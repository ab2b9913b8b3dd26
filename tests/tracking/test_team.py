"""A real MLflow server over PostgreSQL and an S3-compatible store, shared by several workspaces and several users."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.team import Team
from tests.tracking.test_tracking import BASELINE, evaluations, judged, runs, swept, tracker
from workbench.tracking import links_of, place_of
from workbench.tracking.store import client_of, mlflow_errors
from workbench.values.errors import ConfigError, ToolchainError


def client(workspace: Path) -> Any:
    return client_of(place_of(workspace))


def test_a_sweep_is_on_the_server_with_its_files_and_nothing_of_it_in_the_workspace(
    server: Team, tmp_path: Path, name: str
) -> None:
    model = tmp_path / "compiled"
    model.mkdir()
    (model / "model.onnx").write_bytes(b"onnx")

    links = swept(tmp_path, name=name, models=lambda _: model)

    (best,) = runs(tmp_path, "tags.recommended = 'true'", name)
    (summary,) = runs(tmp_path, "tags.kind = 'sweep'", name)
    files = {file.path for file in client(tmp_path).list_artifacts(best.info.run_id)}
    page = Path(client(tmp_path).download_artifacts(summary.info.run_id, "pareto.html", str(tmp_path)))
    assert len(runs(tmp_path, "tags.kind = 'candidate'", name)) == 6
    assert {"candidate.json", "evaluation.json", "confirmation.json", "model"} == files
    assert "Pareto front" in page.read_text()
    assert best.info.artifact_uri.startswith("mlflow-artifacts:/")
    assert (best.data.tags["evidence"], "@" in best.data.tags["mlflow.user"]) == ("measured held-out", True)
    assert not (tmp_path / "mlruns").exists()
    assert all(line.split(": ")[1].strip().startswith(f"{server.address}/#/") for line in links)
    assert links_of(tmp_path, name) == links


def test_two_users_with_experiments_of_one_name_share_an_experiment_and_no_run(
    server: Team, tmp_path: Path, name: str
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"

    first = swept(mine, name=name)
    second = swept(theirs, evaluations()[:4], name)

    assert len(runs(mine, "tags.kind = 'candidate'", name)) == 6 + 4
    assert len(runs(mine, f"tags.candidate = '{BASELINE.candidate.id}'", name)) == 2
    assert (links_of(mine, name), links_of(theirs, name)) == (first, second)


def test_a_server_that_hangs_is_asked_once_and_told_everything_when_it_answers(
    server: Team, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.tracking.server.PROBE_S", 0.5)  # a server that hangs is not waited for longer
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    found = evaluations()
    with tracker(tmp_path, name) as writer:
        writer.evaluated(found[0], reused=False)
        with server.hanging():
            for one in found[1:5]:
                writer.evaluated(one, reused=False)
            said = writer.conclude(judged(found[:5]))
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")  # what it was asked while it hung comes first
        assert [len(caplog.records), said[0].split(": ")[0]] == [1, "not logged"]
        assert "gave no answer in time" in caplog.text
        assert said[1] == f"to log it later: workbench log experiments/loans.yaml --workspace {tmp_path}"
        monkeypatch.setattr(writer, "_again", 0.0)  # the pause is over, unwaited for
        monkeypatch.setattr("workbench.tracking.server.PROBE_S", 30.0)  # on a busy machine it answers late
        writer.evaluated(found[5], reused=False)
        assert len(runs(tmp_path, "tags.kind = 'candidate'", name)) == 6
        writer.conclude(judged(found))

    assert len(runs(tmp_path, "tags.kind = 'candidate'", name)) == 6
    assert len(runs(tmp_path, "tags.kind = 'sweep'", name)) == 1


def test_a_run_that_was_made_twice_because_its_answer_was_lost_is_there_once(
    server: Team, tmp_path: Path, name: str
) -> None:
    swept(tmp_path, name=name)
    with tracker(tmp_path, name) as writer:
        tags = {"sweep": writer.sweep_id, "kind": "candidate", "candidate": BASELINE.candidate.id}
        client(tmp_path).create_run(writer.experiment_id, tags=tags)

    with tracker(tmp_path, name) as writer:
        writer.evaluated(replace(BASELINE, attempt=2), reused=False)

    (run,) = runs(tmp_path, f"tags.candidate = '{BASELINE.candidate.id}'", name)
    assert run.info.status == "FINISHED"


def test_an_experiment_with_runs_of_somebody_elses_is_left_alone(server: Team, tmp_path: Path, name: str) -> None:
    with mlflow_errors():
        opened = client(tmp_path)
        opened.create_run(opened.create_experiment(name))

    with pytest.raises(ConfigError, match="holds runs that the workbench did not write"), tracker(tmp_path, name):
        pass

    assert len(runs(tmp_path, "", name)) == 1


def test_an_address_that_is_no_servers_and_a_registry_without_a_server_are_refused(tmp_path: Path) -> None:
    for address in ("sqlite:///x.db", "./mlruns", "databricks", "ftp://x"):
        with pytest.raises(ConfigError, match=r"MLFLOW_TRACKING_URI: .* is no address of an MLflow server"):
            place_of(tmp_path, {"MLFLOW_TRACKING_URI": address})
    with pytest.raises(ConfigError, match="point to bundles on this machine"):
        place_of(tmp_path, {"MLFLOW_REGISTRY_URI": "http://models:5000"})


def test_a_password_in_an_address_is_never_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")

    with pytest.raises(ToolchainError, match=r"http://127\.0\.0\.1:9 failed: the connection was refused") as caught:
        links_of(tmp_path, "x")

    assert "secret" not in f"{caught.value}{swept(tmp_path, name='x')}"
