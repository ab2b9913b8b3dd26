"""Spaces are written, and read back by the reader of every space."""

from pathlib import Path

import pytest

from workbench.space.reader import read_space
from workbench.space.writer import space_yaml

SHIPPED = sorted((Path(__file__).parent.parent.parent / "search_spaces").glob("*.yaml"))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_space_is_written_and_read_back_as_it_is(file: Path, tmp_path: Path) -> None:
    space = read_space(file)
    written = tmp_path / "again.yaml"
    written.write_text(space_yaml(space), encoding="utf-8")
    again = read_space(written)

    assert again.digest == space.digest
    assert [(p.name, p.assignment) for p in again.presets] == [(p.name, p.assignment) for p in space.presets]
    assert [p.about for p in again.parameters] == [p.about for p in space.parameters]
