"""The empty database that is kept for the next workspace: a copy is MLflow's own, a damaged one is never used."""

import sqlite3
from pathlib import Path

import pytest

from workbench.tracking import store
from workbench.tracking.store import copy_empty, keep_empty


def experiments(database: Path) -> list[str]:
    with store.mlflow_errors():
        return [found.name for found in store.open_client(database).search_experiments()]


def schema(database: Path) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()
    finally:
        connection.close()


def test_the_second_workspace_gets_a_copy_that_mlflow_takes_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store.prepare(tmp_path / "first")
    (kept,) = (tmp_path / "cache" / "workbench" / "mlflow").iterdir()

    store.prepare(tmp_path / "second")

    first, second = tmp_path / "first" / "mlflow.db", tmp_path / "second" / "mlflow.db"
    assert [*kept.parent.iterdir()] == [kept]
    assert schema(second) == schema(first)
    assert experiments(second) == ["Default"]

    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    assert not copy_empty(tmp_path / "third.db")


def test_where_nothing_can_be_kept_every_database_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "mlflow.db").write_bytes(b"")

    keep_empty(tmp_path / "mlflow.db")

    assert not copy_empty(tmp_path / "other.db")
