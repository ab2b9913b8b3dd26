"""Files that attack every reader of the product: each is read or refused by name, none brings a reader down.

A few of each format here; thousands, with their times and memory, by `python -m tests.hostile.files`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.formats import Format, prepare

EACH = 3
FIRST_SEED = 7_000
SLOW = ("inspected.onnx",)  # asks every target, which has its own tests


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Format]]]:
    folder = tmp_path_factory.mktemp("hostile")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    try:
        yield folder, prepare(folder)
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


def test_every_reader_takes_or_refuses_what_it_is_given(formats: tuple[Path, dict[str, Format]]) -> None:
    folder, found = formats
    refused = 0
    for name, form in found.items():
        if name in SLOW:
            continue
        for seed in range(FIRST_SEED, FIRST_SEED + EACH):
            path = form.place(folder)
            path.write_bytes(form.hostile(seed))
            try:
                form.read(path)
            except form.refusals:
                refused += 1
            except Exception as error:
                pytest.fail(f"{name}, seed {seed}: {type(error).__name__}: {error}")

    assert refused > EACH * len(found) // 3


def test_the_sound_files_are_read(formats: tuple[Path, dict[str, Format]]) -> None:
    folder, found = formats
    for name in ("experiment.yaml", "space.yaml", "rows.csv", "rows.jsonl", "amct.cfg", "record.txt", "hostile.onnx"):
        path = found[name].place(folder)
        path.write_bytes(found[name].seeds[0])
        found[name].read(path)
