"""Making room in a shared store, beside those who read and write it."""

from tests.evaluation.shared_places import ENTRY, KEY, Team, builder, file_of, published, put, stored
from workbench.evaluation.shared_store import Cleaned, clean, usage_of


def test_cleaning_takes_what_no_entry_names_and_nothing_else(team: Team) -> None:
    published(team)
    shared = team.shared()
    put(shared, file_of(b"left"), b"left")
    put(shared, "v1/uploads/half", b"half")
    put(shared, f"v1/entries/artifact/00/{'0' * 64}.json", b"{")

    assert clean(shared).left_over == 0  # younger than a day
    expected = clean(shared, left_after_s=-5.0, dry=True)
    found = clean(shared, left_after_s=-5.0)

    assert clean(shared, left_after_s=-5.0, dry=True) == Cleaned(entries=0, left_over=0, freed_bytes=0)
    assert found == expected == Cleaned(entries=0, left_over=3, freed_bytes=9)
    usage = usage_of(shared)
    assert (usage.entries, usage.files, usage.size_bytes) == ({"artifact": 1}, 2, 7)
    assert team.machine("two")[0].find("artifact", KEY) is not None


def test_cleaning_by_age_takes_entries_and_their_files(team: Team) -> None:
    published(team)
    shared = team.shared()

    assert clean(shared, older_than_s=3600.0).entries == 0
    assert clean(shared, older_than_s=-5.0, left_after_s=-5.0).entries == 1

    assert stored(shared, "v1") == []


def test_a_file_cleaned_beside_its_publisher_is_sent_again(team: Team) -> None:
    """The publisher relies on a file that is there, and a cleaner takes it before the listing names it."""
    store, said, _ = team.machine("one")
    shared = team.shared()
    put(shared, file_of(b"content"), b"content")
    real = store.shared.remote.write if store.shared is not None else None
    assert real is not None

    def write(path: str, blocks: object, size: int) -> None:
        if path == ENTRY:
            shared.remote.remove(file_of(b"content"))
        real(path, blocks, size)

    store.shared.remote.write = write
    store.get_or_build("artifact", KEY, builder())
    store.close()

    assert team.machine("two")[0].find("artifact", KEY) is not None
    assert said == []
