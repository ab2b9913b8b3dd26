"""The Model Registry of a team's server: bundles from other machines, promoters at once, and kills in between."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.test_team import client
from tests.tracking.test_versions import aliases, roll_back
from tests.tracking.test_versions import registered as registered_in
from workbench.tracking import links_of
from workbench.tracking.champion import open_versions, promote
from workbench.tracking.versions import CHAMPION, PREVIOUS, Version, Versions
from workbench.values.errors import ConfigError, ToolchainError

pytestmark = pytest.mark.usefixtures("server")


def registered(workspace: Path, name: str, letter: str) -> Version:
    with open_versions(workspace, name) as versions:
        return registered_in(versions, workspace, letter)


def said(versions: Versions) -> list[dict[str, Any]]:
    log = versions.releases()
    assert log.problems == ()
    return [(line.content or {})["release"] for line in log.lines]


def moved_to(versions: Versions) -> int:
    return [line["champion_after"] for line in said(versions)][-1]


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each gave or raised."""
    barrier, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(place: int) -> None:
        barrier.wait()
        try:
            results[place] = calls[place]()
        except (ConfigError, ToolchainError) as error:
            results[place] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


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


def test_of_four_who_promote_at_once_one_moves_champion_and_the_others_are_told(
    tmp_path: Path,
    name: str,
) -> None:
    first = registered(tmp_path, name, "a")
    others = [registered(tmp_path, name, letter) for letter in "bcde"]
    with open_versions(tmp_path, name) as versions:
        promote(versions, first, over=None)

    def promoter(place: int) -> Callable[[], Any]:
        def run() -> Any:
            with open_versions(tmp_path / str(place), name) as versions:
                return promote(versions, others[place], over=first)

        return run

    results = at_once(*(promoter(place) for place in range(4)))

    winners = [one.champion.number for one in results if not isinstance(one, ConfigError)]
    assert len(winners) == 1
    assert all("changed while this bundle was compared" in str(one) for one in results if isinstance(one, ConfigError))
    with open_versions(tmp_path, name) as versions:
        assert aliases(versions) == {CHAMPION: winners[0], PREVIOUS: first.number}
        assert moved_to(versions) == winners[0]


def test_a_line_that_is_taken_out_of_the_servers_log_shows(tmp_path: Path, name: str) -> None:
    for letter in "ab":
        registered(tmp_path, name, letter)
    with open_versions(tmp_path, name) as versions:
        promote(versions, versions.version(1), over=None)
        promote(versions, versions.version(2), over=versions.version(1))
        for entry, problem in (("4", "line 4, the last that the registry knows, is missing"), ("2", "line 2 has")):
            versions.client.delete_model_version(f"{name}.releases", entry)
            assert any(problem in one for one in versions.releases().problems)


def test_a_server_that_is_away_is_said_before_any_work(
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")

    with pytest.raises(ToolchainError, match=r"the connection was refused\. Check MLFLOW_TRACKING_URI"):
        registered(tmp_path, name, "a")
    assert list(tmp_path.iterdir()) == []
