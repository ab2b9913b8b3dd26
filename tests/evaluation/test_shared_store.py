"""One suite for every place that a shared store may lie in: what machines take from each other, and what they do when
it is damaged, hostile, full or away."""

import os
from pathlib import Path

import pytest

from tests.evaluation.shared_places import ENTRY, KEY, NAME, Builder, Team, file_of, published, put, sha, stored
from workbench.evaluation.shared_store.remote import checked_url, words_of
from workbench.values.documents.canonical import digest
from workbench.values.documents.sealed_json import sealed
from workbench.values.errors import ConfigError


def test_what_one_machine_built_another_has(team: Team) -> None:
    published(team)
    other, said, _ = team.machine("two")
    build = Builder(b"mine")

    entry = other.get_or_build("artifact", KEY, build)

    assert (entry.cached, build.calls, said) == (True, 0, [])
    assert (entry.path / "deep/file.bin").read_bytes() == b"content"
    assert (entry.path / "empty").read_bytes() == b""
    found = other.find("artifact", KEY)
    assert found.path == entry.path
    assert other.unpublished == 0
    assert len(stored(team.shared(), "v1")) == 3, "the entry and two files of content"


def test_json_goes_through_too_and_what_was_measured_on_a_machine_stays_there(team: Team) -> None:
    one, _, _ = team.machine("one")
    one.json_of("memory", KEY, lambda: 3)
    one.close()
    assert stored(team.shared(), "v1") == []
    one, _, _ = team.machine("one")
    one.json_of("structure", KEY, lambda: {"layers": 3})
    one.close()
    two, _, _ = team.machine("two")

    assert two.get_json("memory", KEY) is None
    assert two.get_json("structure", KEY) == {"layers": 3}
    assert two.get_json("structure", {"model": "other"}) is None


@pytest.mark.parametrize(
    ("path", "left"),
    [
        pytest.param(file_of(b"content"), b"cont", id="truncated file"),
        pytest.param(file_of(b"content"), b"kontent", id="corrupted file"),
        pytest.param(file_of(b"content"), None, id="missing file"),
        pytest.param(ENTRY, b'{"entry":"', id="truncated listing"),
        pytest.param(ENTRY, b"", id="empty listing"),
    ],
)
def test_damage_is_said_never_used_and_mended(team: Team, path: str, left: bytes | None) -> None:
    published(team)
    shared = team.shared()
    if left is None:
        shared.remote._fs.rm_file(shared.remote.at(path))
    else:
        put(shared, path, left)
    two, said, _ = team.machine("two")
    build = Builder()

    entry = two.get_or_build("artifact", KEY, build)
    two.close()

    assert (entry.cached, build.calls) == (False, 1)
    assert len(said) == 1
    assert f"artifact/{NAME[:12]} is damaged and not used" in said[0]
    third, said, _ = team.machine("three")
    assert third.find("artifact", KEY) is not None
    assert said == []


# --- what comes from outside ---------------------------------------------------------------------------------------


def listing_of(name: str, files: object) -> bytes:
    return sealed({"version": 1, "kind": "artifact", "entry": name, "files": files})


X = {"sha256": sha(b"x"), "size_bytes": 1}
HOSTILE: dict[str, object] = {
    "up": {"../escape": X},
    "absolute": {"/tmp/escape": X},
    "up in the middle": {"a/../../escape": X},
    "not the one form": {"a//b": X},
    "obeyed by a terminal": {"a\n\x1b[2Jb": X},
    "too deep": {"/".join("a" * 80): X},
    "too long": {"a" * 300: X},
    "file and folder": {"a": X, "a/b": X},
    "a digest that is a path": {"a": {**X, "sha256": "../../escape"}},
    "larger than anything": {"a": {**X, "size_bytes": 1 << 60}},
    "negative size": {"a": {**X, "size_bytes": -1}},
    "no number": {"a": {**X, "size_bytes": True}},
    "no file": {"a": "x"},
    "no files": ["a"],
}


def test_a_hostile_listing_writes_nothing_anywhere(team: Team, tmp_path: Path) -> None:
    shared = team.shared()
    put(shared, file_of(b"x"), b"x")
    machine, said, _ = team.machine("one")
    before = {path for path in tmp_path.rglob("*") if "team" not in path.parts}
    for case, files in HOSTILE.items():
        name = digest({"case": case})
        put(shared, f"v1/entries/artifact/{name[:2]}/{name}.json", listing_of(name, files))

        assert machine.find("artifact", {"case": case}) is None, case
        assert "is damaged and not used" in said[-1], case
        assert "\x1b" not in said[-1]

    assert len(said) == len(HOSTILE)
    assert {path for path in tmp_path.rglob("*") if "team" not in path.parts} <= before | {machine.root / "artifact"}
    assert not Path("/tmp/escape").exists()


def test_an_entry_of_more_than_the_disk_holds_is_not_fetched(team: Team) -> None:
    shared = team.shared()
    put(shared, ENTRY, listing_of(NAME, {"a": {**X, "size_bytes": 1 << 41}}))
    machine, said, faults = team.machine("one")

    assert machine.find("artifact", KEY) is None
    assert "is not fetched" in said[0]
    assert faults.calls.count("cat_file") == 1  # the listing


def test_a_link_or_a_pipe_in_a_shared_folder_is_no_file(tmp_path: Path) -> None:
    """Either could lead anywhere, or hold a reader without end."""
    (tmp_path / "team").mkdir()
    team = Team(str(tmp_path / "team"), tmp_path)
    published(team)
    store, said, _ = team.machine("two")
    for path in (file_of(b"content"), ENTRY):
        place = tmp_path / "team" / path
        content = place.read_bytes()
        for target in ("/dev/zero", "/etc/passwd", ""):
            place.unlink()
            place.symlink_to(target) if target else os.mkfifo(place)
            assert store.find("artifact", KEY) is None
        place.unlink()
        place.write_bytes(content)
    assert len(said) == 3
    assert store.find("artifact", KEY) is not None
    team.close()


# --- a store that is full, refuses, or is away ---------------------------------------------------------------------


def test_a_store_that_refuses_writes_costs_nothing_but_time(team: Team) -> None:
    store, said, faults = team.machine("one")
    faults.refuse_writes()
    for number in range(3):
        store.json_of("structure", {"number": number}, lambda number=number: number)
    store.close()

    assert [store.get_json("structure", {"number": n}) for n in range(3)] == [0, 1, 2]
    assert store.unpublished == 3
    assert len([words for words in said if "takes no results now" in words]) == 1
    assert "3 results are kept in" in said[-1]
    later, said, _ = team.machine("one")  # whoever opens the root next publishes them
    later.close()
    assert (later.unpublished, said) == (0, [])
    other, _, _ = team.machine("two")
    assert [other.get_json("structure", {"number": n}) for n in range(3)] == [0, 1, 2]


def test_a_store_that_is_away_is_said_once_done_without_and_asked_again_after_a_while(team: Team) -> None:
    published(team)
    store, said, faults = team.machine("two")
    faults.refuse_all()

    entries = [store.get_or_build("artifact", {"number": n}, Builder()) for n in range(5)]
    assert store.find("artifact", KEY) is None

    assert not any(entry.cached for entry in entries)
    assert len([words for words in said if "is away" in words]) == 1
    assert "computed here until it answers again" in said[0]
    faults.refuse = {}
    assert store.find("artifact", KEY) is None  # not yet
    store.shared.reading.until = 0.0
    assert store.find("artifact", KEY) is not None
    assert any(words.endswith("answers again.") for words in said)  # beside what is said of writing


def test_a_store_that_never_answers_holds_nobody(team: Team) -> None:
    store, said, faults = team.machine("one")
    store.shared.remote.patience_s = 0.1
    faults.hang = {"info", "cat_file", "open", "makedirs"}

    assert not store.get_or_build("artifact", KEY, Builder()).cached
    store.close()

    assert "no answer within 0.1 s" in said[0]
    assert store.unpublished == 1


# --- the URL -------------------------------------------------------------------------------------------------------


def test_a_folder_is_a_place_and_a_url_that_is_none_or_says_too_much_is_refused_without_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert checked_url("team/store") == f"file://{tmp_path}/team/store"
    assert checked_url("s3://bucket/prefix/") == "s3://bucket/prefix"
    for bad in (
        *("ftp://host/x", "s3://", "s3://key:secret@bucket/x", "s3://bucket/x?secret=abc", "file://relative", ""),
        *("simplecache::s3://bucket/x", "s3://bucket/../other", "memory://", "reference://x"),
    ):
        with pytest.raises(ConfigError) as error:
            checked_url(bad)
        assert "secret" not in str(error.value).lower()


def test_words_of_an_error_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")

    text = words_of(OSError("refused for hunter2hunter2 at https://me:pw@host/x?X-Amz-Signature=abc123\nmore"))

    assert words_of(RuntimeError("Unable to locate credentials")) == "RuntimeError: Unable to locate credentials"
    assert not [secret for secret in ("hunter2", "pw", "abc123", "more") if secret in text]


def test_a_place_that_is_not_there_is_away_and_never_made(tmp_path: Path) -> None:
    missing = Team(str(tmp_path / "not-mounted"), tmp_path)
    store, said, _ = missing.machine("one")

    store.get_or_build("artifact", KEY, Builder())
    store.close()

    assert not (tmp_path / "not-mounted").exists()
    assert "is away (FileNotFoundError" in said[0]
    assert store.unpublished == 1
