"""Narrowed spaces: written, and read back by the reader of every space."""

from pathlib import Path

import pytest

from workbench.space.reader import read_space
from workbench.space.writer import Dropped, narrowed, space_yaml

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


def test_what_names_a_choice_that_is_gone_follows_it(tmp_path: Path) -> None:
    space = read_space(next(file for file in SHIPPED if file.stem == "onnxruntime"))
    scheme = next(p for p in space.parameters if p.name == "quantization.scheme")
    gone = [Dropped(name=scheme.name, choice="static", why="it lost for certain")]

    small = narrowed(space, gone)
    written = tmp_path / "small.yaml"
    written.write_text(space_yaml(small, dropped=gone), encoding="utf-8")

    assert read_space(written).digest == small.digest
    assert all("static" not in p.when.get(scheme.name, ()) for p in small.parameters)
    assert "quantization.algorithm" not in {p.name for p in small.parameters}
    assert all(p.assignment[scheme.name] != "static" for p in small.presets)
    assert "# static left out: it lost for certain" in written.read_text(encoding="utf-8")


def test_an_engine_that_lost_leaves_a_space_of_the_other(tmp_path: Path) -> None:
    space = read_space(next(file for file in SHIPPED if file.stem == "cpu"))
    small = narrowed(space, [Dropped(name="target", choice="openvino", why="slower")])
    written = tmp_path / "small.yaml"
    written.write_text(space_yaml(small), encoding="utf-8")

    assert read_space(written).targets == ("onnxruntime",)
    assert read_space(written).digest == small.digest


def test_a_parameter_keeps_one_choice_whatever_is_said_against_it() -> None:
    space = read_space(SHIPPED[0])
    first = space.parameters[0]
    every = [Dropped(name=first.name, choice=choice, why="it lost") for choice in first.choices]

    assert next(p for p in narrowed(space, every).parameters if p.name == first.name).choices == first.choices[:1]
