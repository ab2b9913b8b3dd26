"""The Model Registry on a real store: versions, aliases, and what a kill between two writes leaves."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.tracking import links_of, place_of, store
from workbench.tracking.champion import Moved, open_versions, promote, recover, restorable, rollback
from workbench.tracking.releases import Release, text_of
from workbench.tracking.versions import CHAMPION, PREVIOUS, Version, Versions
from workbench.values.errors import ConfigError, ToolchainError

NAME = "loans"


@pytest.fixture
def versions(workspace: Path) -> Iterator[Versions]:
    with open_versions(workspace, NAME, about="Which model do loans get?") as opened:
        yield opened


def registered(versions: Versions, workspace: Path, letter: str) -> Version:
    """A folder of files stands in for a bundle: the registry does not look into it."""
    folder = workspace / f"folder-{letter}"
    if not folder.exists():
        (folder / "model").mkdir(parents=True)
        (folder / "manifest.json").write_text(f'"{letter}"\n', encoding="utf-8")
        (folder / "model" / "model.onnx").write_bytes(letter.encode() * 100)
    tags = {"candidate": letter * 64, "emulated": "false", "model_sha256": "0" * 64}
    return versions.register(
        folder, manifest_sha256=letter * 64, candidate_id=letter * 64, tags=tags, description=f"# {letter}"
    )


def promoted(versions: Versions, workspace: Path, letters: str) -> list[Version]:
    """One for each letter, the second of them champion after the first."""
    found = [registered(versions, workspace, letter) for letter in letters]
    promote(versions, found[0], over=None)
    promote(versions, found[1], over=found[0])
    return found


def aliases(versions: Versions) -> dict[str, int]:
    return {alias: version.number for version in versions.all() for alias in version.aliases}


def roll_back(versions: Versions) -> Moved:
    champion, previous = restorable(versions)
    return rollback(versions, previous, over=champion)


def test_a_registered_bundle_comes_back_with_its_provenance(versions: Versions, workspace: Path) -> None:
    assert links_of(workspace, NAME) == []
    made = registered(versions, workspace, "a")

    found = versions.version(1)
    files = {p.relative_to(versions.bundle(found)).as_posix() for p in versions.bundle(found).rglob("*") if p.is_file()}

    assert found == made
    assert (found.name, found.number, found.aliases) == (NAME, 1, ())
    assert found.tags["model_sha256"] == "0" * 64
    assert files == {"manifest.json", "model/model.onnx"}
    assert links_of(workspace, NAME)[-1].endswith("127.0.0.1:5000/#/models/loans?workflowType=machine_learning")
    assert (versions.bundle(found) / "model" / "model.onnx").read_bytes() == b"a" * 100


def test_bundles_and_aliases_move_with_the_workspace(versions: Versions, workspace: Path, tmp_path: Path) -> None:
    promoted(versions, workspace, "ab")
    (tmp_path / "elsewhere").mkdir()
    (workspace / "mlruns").rename(tmp_path / "elsewhere" / "mlruns")

    with open_versions(tmp_path / "elsewhere", NAME) as moved:
        back = roll_back(moved).champion
        folder = moved.bundle(back)

    assert back.number == 1
    assert folder.is_relative_to(tmp_path / "elsewhere")
    assert (folder / "model" / "model.onnx").read_bytes() == b"a" * 100


def test_registering_again_gives_the_same_version_with_the_run_of_the_candidate(
    versions: Versions, workspace: Path
) -> None:
    with store.mlflow_errors():
        client = store.client_of(place_of(workspace))
        experiment = store.open_experiment(client, NAME, workspace / "mlruns" / "artifacts", "")
        run = client.create_run(experiment, tags={"kind": "candidate", "candidate": "a" * 64})
    first, second, other = (registered(versions, workspace, letter) for letter in "aab")

    assert first == second
    assert (first.run_id, first.run_id == other.run_id) == (run.info.run_id, False)
    assert [v.number for v in versions.all()] == [first.number, other.number] == [1, 2]
    shutil.rmtree(versions.bundle(first))
    with pytest.raises(ToolchainError, match="version 1 of 'loans' has no bundle at"):
        versions.bundle(first)
    assert registered(versions, workspace, "a") == first
    assert (versions.bundle(first) / "model" / "model.onnx").read_bytes() == b"a" * 100


def test_a_rollback_walks_back_as_far_as_there_were_champions(versions: Versions, workspace: Path) -> None:
    with pytest.raises(ConfigError, match="'loans' has no champion"):
        roll_back(versions)
    _, b, c = promoted(versions, workspace, "abc")
    promote(versions, c, over=b)

    roll_back(versions)
    assert aliases(versions) == {CHAMPION: 2, PREVIOUS: 1}
    moved = roll_back(versions)
    assert (moved.champion.number, moved.previous) == (1, None)
    assert aliases(versions) == {CHAMPION: 1}
    with pytest.raises(ConfigError, match="no previous version: version 1 is the only one"):
        roll_back(versions)
    assert aliases(versions) == {CHAMPION: 1}
    assert "rolled_back_at" in versions.version(3).tags


def test_what_changed_since_it_was_looked_at_stops_a_promotion_and_a_rollback(
    versions: Versions, workspace: Path
) -> None:
    a, b, c = promoted(versions, workspace, "abc")
    champion, previous = restorable(versions)

    with pytest.raises(ConfigError, match="it is version 2, it was version 1"):
        promote(versions, c, over=a)
    with pytest.raises(ConfigError, match="version 2 of 'loans' is the champion already"):
        promote(versions, b, over=b)
    assert aliases(versions) == {CHAMPION: 2, PREVIOUS: 1}
    promote(versions, c, over=b)
    with pytest.raises(ConfigError, match="changed while version 1 was checked: they are version 3 and version 2"):
        rollback(versions, previous, over=champion)
    assert aliases(versions) == {CHAMPION: 3, PREVIOUS: 2}


WRITES = (
    *("create_model_version", "set_model_version_tag"),
    *("set_registered_model_alias", "delete_registered_model_alias"),
)


class Killed(BaseException):
    """Nothing catches it, so what was written stays as it is and the lock falls, as by kill -9."""


def kill_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method of MLflow's client that writes to the log or the registered model is counted."""
    from mlflow import MlflowClient

    done: list[str] = []

    def counted(name: str) -> None:
        write = getattr(MlflowClient, name)

        def run(client: MlflowClient, *arguments: object, **named: object) -> object:
            if len(done) == writes:
                raise Killed
            done.append(name)
            return write(client, *arguments, **named)

        monkeypatch.setattr(MlflowClient, name, run)

    for name in WRITES:
        counted(name)


def test_a_kill_between_any_two_writes_leaves_the_old_or_the_new_state(workspace: Path, tmp_path: Path) -> None:
    with open_versions(workspace, NAME) as versions:
        promoted(versions, workspace, "abc")
    old = {CHAMPION: 2, PREVIOUS: 1}
    commands = (("promote", 5, {CHAMPION: 3, PREVIOUS: 2}), ("rollback", 4, {CHAMPION: 1}))
    for command, writes, new in ((name, done, new) for name, most, new in commands for done in range(most)):
        copied = tmp_path / f"{command}-{writes}"
        shutil.copytree(workspace / "mlruns", copied / "mlruns")
        with open_versions(copied, NAME) as versions, pytest.MonkeyPatch.context() as patched:
            b, c = versions.version(2), versions.version(3)
            kill_after(writes, patched)
            with pytest.raises(Killed):
                promote(versions, c, over=b) if command == "promote" else roll_back(versions)
        with open_versions(copied, NAME) as versions:
            stands = aliases(versions)
            log = versions.releases()
            assert recover(versions) == ""

        moves_at = 3 if command == "promote" else 2
        assert stands == (old if writes < moves_at else new), f"after {writes} writes of {command}"
        assert log.problems == ()
        said = log.lines[-1]["release"]
        assert said["champion_after"] == stands[CHAMPION], "the log's last line is not what stands"
        assert said["act"] == ("promotion" if stands == old else "recovery")


def test_an_alias_that_somebody_moved_by_hand_stands_and_is_in_the_log(versions: Versions, workspace: Path) -> None:
    promoted(versions, workspace, "abc")
    versions.client.set_registered_model_alias(NAME, CHAMPION, "3")

    with open_versions(workspace, NAME) as again:
        assert aliases(again)[CHAMPION] == 3
        assert again.releases().lines[-1]["release"]["reason"].startswith("found so")


def test_a_champion_that_was_lost_leaves_its_previous_to_roll_back_to(versions: Versions, workspace: Path) -> None:
    promoted(versions, workspace, "ab")
    versions.client.delete_model_version(NAME, "2")

    assert aliases(versions) == {PREVIOUS: 1}
    moved = roll_back(versions)

    assert (moved.champion.number, moved.previous, moved.before) == (1, None, None)
    assert aliases(versions) == {CHAMPION: 1}


def test_a_previous_that_was_deleted_is_named_and_a_promotion_after_a_lost_champion_keeps_it(
    versions: Versions, workspace: Path
) -> None:
    *_, c = promoted(versions, workspace, "abc")
    versions.client.delete_registered_model_alias(NAME, CHAMPION)
    promote(versions, c, over=None)
    assert aliases(versions) == {CHAMPION: 3, PREVIOUS: 1}
    versions.client.delete_model_version(NAME, "1")

    with pytest.raises(ConfigError, match="no previous version: version 1, which version 3 replaced, was deleted"):
        restorable(versions)
    assert aliases(versions) == {CHAMPION: 3}


def test_every_export_promotion_and_rollback_has_its_line(versions: Versions, workspace: Path) -> None:
    a, b = (registered(versions, workspace, letter) for letter in "ab")
    registered(versions, workspace, "a")
    promote(versions, a, over=None, verdict="{}")
    versions.note_refused("promotion", b, "failed: size", "{}")
    promote(versions, b, over=a)
    roll_back(versions)

    log = versions.releases()
    said = [line["release"] for line in log.lines]

    assert log.problems == ()
    assert [(s["act"], s["version"], s["champion_before"], s["champion_after"]) for s in said] == [
        ("registration", 1, None, None),
        ("registration", 2, None, None),
        ("promotion", 1, None, 1),
        ("promotion", 2, 1, 1),
        ("promotion", 2, 1, 2),
        ("rollback", 1, 2, 1),
    ]
    assert [s["verdict"] for s in said] == ["", "", "passed", "failed", "passed", "passed"]
    assert said[2]["verdict_sha256"] == said[3]["verdict_sha256"] == hashlib.sha256(b"{}").hexdigest()
    assert {s["manifest_sha256"] for s in said} == {"a" * 64, "b" * 64}


def test_the_file_of_an_earlier_workbench_is_the_beginning_of_the_log(versions: Versions, workspace: Path) -> None:
    a = registered(versions, workspace, "a")
    versions.client.delete_registered_model(f"{NAME}.releases")
    said = {"act": "registration", "version": 1, "manifest_sha256": "a" * 64}
    text = text_of(NAME, Release(**said, champion_before=None, champion_after=None), ())  # type: ignore[arg-type]
    file = workspace / "mlruns" / "releases" / f"{NAME}.jsonl"
    file.parent.mkdir()
    file.write_text(f"{text}\n", encoding="utf-8")

    with open_versions(workspace, NAME) as opened:
        promote(opened, a, over=None)
        log = opened.releases()

    assert log.problems == ()
    assert [line["number"] for line in log.lines] == [1, 2]
    file.write_text(f"{text}x\n", encoding="utf-8")
    with open_versions(workspace, NAME) as opened:
        assert opened.releases().problems


def test_a_kill_while_registering_leaves_no_version_and_the_next_try_makes_one(
    versions: Versions, workspace: Path
) -> None:
    from mlflow import MlflowClient

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MlflowClient, "create_model_version", kill)
        with pytest.raises(Killed):
            registered(versions, workspace, "a")
    assert versions.all() == []

    made = registered(versions, workspace, "a")

    assert [v.number for v in versions.all()] == [1]
    assert (versions.bundle(made) / "manifest.json").exists()
    assert len(list((workspace / "mlruns" / "artifacts").iterdir())) == 1


def test_a_registry_that_is_not_there_is_said_and_one_that_is_being_changed_waited_for(
    versions: Versions, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="nothing was registered here"):
        open_versions(workspace / "elsewhere", NAME, create=False).__enter__()
    monkeypatch.setattr("workbench.tracking.versions.LOCK_WAIT_S", 0.2)
    with versions.writing(), pytest.raises(ToolchainError, match="another command has been changing the registry"):
        registered(versions, workspace, "a")


def test_a_verdict_is_kept_whole_beside_the_bundle(versions: Versions, workspace: Path) -> None:
    version = registered(versions, workspace, "a")
    versions.keep_verdict(version, passed=False, text='{"promoted": false}')

    found = versions.version(1)
    folder = versions.bundle(version).parent

    assert found.tags["promotion_checks"] == "failed"
    assert (folder / found.tags["promotion_verdict"]).read_text() == '{"promoted": false}'
