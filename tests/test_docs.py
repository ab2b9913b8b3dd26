"""The README tells the truth: its commands exist, its files are there, and every shipped file can be read."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from workbench.commands.cli import TASKS, app
from workbench.inputs.experiment import read_experiment
from workbench.space.reader import read_space
from workbench.space.space import size
from workbench.values.errors import ConfigError

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = set(get_command(app).commands)  # type: ignore[attr-defined]  # a click group


def test_every_command_the_readme_names_exists_and_the_table_misses_none() -> None:
    named = set(re.findall(r"workbench ([a-z-]+)", README)) - {"searches", "follows"}
    table = set(re.findall(r"^\| `workbench ([a-z-]+)", README, flags=re.MULTILINE))

    assert named <= COMMANDS
    assert table | {"example"} == COMMANDS


def test_help_lists_every_command_under_what_it_is_for_in_the_order_of_use() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]  # a click group
    listed = list(commands)
    panels = [command.rich_help_panel for command in commands.values()]

    assert list(dict.fromkeys(panels)) == list(TASKS)
    assert listed.index("doctor") < listed.index("sweep") < listed.index("export") < listed.index("serve")


def test_every_option_in_the_readmes_examples_exists() -> None:
    for command, rest in re.findall(r"bin/workbench ([a-z-]+)([^\n]*)", README):
        known = {o for p in get_command(app).commands[command].params for o in p.opts}  # type: ignore[attr-defined]  # see above
        assert set(re.findall(r"--[a-z-]+", rest)) <= known


@pytest.mark.parametrize("target", ["quickstart", "test"])
def test_the_make_targets_of_the_readme_exist(target: str) -> None:
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize("file", sorted((ROOT / "search_spaces").glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_search_space_is_sound(file: Path) -> None:
    assert size(read_space(file)).candidates > 1


@pytest.mark.parametrize("file", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_experiment_is_read_or_says_how_to_build_its_example(file: Path) -> None:
    example = Path(YAML(typ="safe").load(file.read_text(encoding="utf-8"))["model"]).parent.name
    if (ROOT / ".workbench" / "examples" / example / "model.onnx").exists():
        assert read_experiment(file).name == file.stem
    else:
        with pytest.raises(ConfigError, match=f"Build it with: workbench example {example}"):
            read_experiment(file)


@pytest.mark.parametrize("folder", ["calibration", "experiments", "search_spaces"])
def test_every_yaml_file_is_commented_for_a_newcomer(folder: str) -> None:
    for file in (ROOT / folder).glob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        assert text.startswith("#"), file
        assert YAML(typ="safe").load(text)["version"] == 1
