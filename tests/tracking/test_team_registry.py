"""The Model Registry of a team's server: bundles from other machines, users with fewer rights, files that are gone."""

from pathlib import Path
from typing import Any

import pytest

from tests.tracking.team import Team
from tests.tracking.test_team import client
from tests.tracking.test_versions import aliases, roll_back
from tests.tracking.test_versions import registered as registered_in
from workbench.tracking import links_of
from workbench.tracking.champion import open_versions, promote
from workbench.tracking.versions import CHAMPION, Version, Versions
from workbench.values.errors import ConfigError, ToolchainError

pytestmark = pytest.mark.usefixtures("server")


def registered(workspace: Path, name: str, letter: str) -> Version:
    with open_versions(workspace, name) as versions:
        return registered_in(versions, workspace, letter)


def said(versions: Versions) -> list[dict[str, Any]]:
    log = versions.releases()
    assert log.problems == ()
    return [line["release"] for line in log.lines]


def test_what_one_machine_promotes_another_rolls_back_with_the_bundle_from_the_server(
    tmp_path: Path,
    name: str,
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    a, b = (registered(mine, name, letter) for letter in "ab")
    with open_versions(mine, name) as versions:
        promote(versions, a, over=None)
        promote(versions, b, over=a, verdict="{}")
        versions.keep_verdict(b, passed=True, text="{}")

    with open_versions(theirs, name, create=False) as versions:
        moved = roll_back(versions)
        folder = versions.bundle(moved.champion)
        standing, acts = aliases(versions), [line["act"] for line in said(versions)]
    by_mlflow = Path(client(theirs).get_model_version_by_alias(name, CHAMPION).source.split("/")[-1])

    assert (moved.champion.number, moved.previous, standing) == (1, None, {CHAMPION: 1})
    assert acts == ["registration", "registration", "promotion", "promotion", "rollback"]
    assert folder.is_relative_to(theirs / ".workbench" / "bundles")
    assert (folder / "model" / "model.onnx").read_bytes() == b"a" * 100
    assert by_mlflow.name == a.folder
    assert links_of(theirs, name)[-1].startswith("bundles: ")
    assert not (theirs / "mlruns").exists()


def test_who_may_edit_and_not_delete_rolls_back_to_a_champion_without_a_previous(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import RestException

    def forbidden(*_: object) -> None:
        raise RestException({"error_code": "PERMISSION_DENIED", "message": "Permission denied"})

    a, b = (registered(tmp_path, name, letter) for letter in "ab")
    # the test's server has no users with rights: this is what one says to a user who may not delete
    monkeypatch.setattr(MlflowClient, "delete_registered_model_alias", forbidden)
    with open_versions(tmp_path, name) as versions:
        promote(versions, a, over=None)
        promote(versions, b, over=a)
        moved = roll_back(versions)

        assert (moved.champion.number, moved.previous) == (1, None)
        assert versions.with_alias(CHAMPION) == moved.champion
        with pytest.raises(ConfigError, match="has no previous version"):
            roll_back(versions)


def test_files_that_somebody_deleted_are_named_and_put_back_by_registering_again(
    tmp_path: Path,
    name: str,
    services: Team,
) -> None:
    import boto3

    version = registered(tmp_path, name, "a")
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    store = boto3.resource("s3", endpoint_url=services.s3, **keys).Bucket("artifacts")
    store.objects.filter(Prefix=f"mlflow/{client(tmp_path).get_run(version.run_id).info.experiment_id}").delete()

    with (
        open_versions(tmp_path, name) as versions,
        pytest.raises(ToolchainError, match=r"version 1 of .* has no bundle at mlflow-artifacts:/"),
    ):
        versions.bundle(version)
    assert registered(tmp_path, name, "a") == version
    with open_versions(tmp_path, name) as versions:
        assert (versions.bundle(version) / "manifest.json").read_text() == '"a"\n'


def test_a_registry_of_its_own_holds_the_versions_and_the_log(
    tmp_path: Path,
    name: str,
    services: Team,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", services.address.replace("127.0.0.1", "localhost"))

    version = registered(tmp_path, name, "a")
    with open_versions(tmp_path, name) as versions:
        promote(versions, version, over=None)
        assert versions.bundle(version).is_dir()
        assert versions.log_name == f"http://localhost:{services.address.split(':')[-1]}, model {name}.releases"


def test_a_server_that_is_away_and_a_name_that_it_does_not_know_are_said(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="nothing was registered there"), open_versions(tmp_path, name, create=False):
        pass
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(ToolchainError, match=r"the connection was refused\. Check MLFLOW_TRACKING_URI"):
        registered(tmp_path / "new", name, "a")
    assert not (tmp_path / "new").exists()
