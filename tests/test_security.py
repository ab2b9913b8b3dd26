"""SECURITY.md promises by name: what it names must be there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
SOURCES = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "workbench").rglob("*.py"))
OF_OTHERS = ("--format",)  # git's


def test_every_option_variable_and_command_it_names_exists() -> None:
    for option in set(re.findall(r"--[a-z][a-z-]+", TEXT)) - set(OF_OTHERS):
        parameter = option.removeprefix("--").replace("-", "_")
        assert f'"{option}' in SOURCES or re.search(rf"^    {parameter}: ", SOURCES, re.MULTILINE), option
    for variable in set(re.findall(r"WORKBENCH_[A-Z_]+", TEXT)):
        assert f'"{variable}"' in SOURCES, variable
    for name in set(re.findall(r"`workbench ([a-z][a-z-]*)", TEXT)):
        assert re.search(rf"^def {name.replace('-', '_')}\(", SOURCES, re.MULTILINE), name
