"""The pages tell the truth: what README and docs/ say of commands, options, files and settings is there."""

import ast
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from workbench.commands.cli import TASKS, app
from workbench.commands.init.files import _name_of
from workbench.commands.options import _PANELS
from workbench.inputs.experiment import read_experiment
from workbench.space.dimensions import dimensions_of
from workbench.space.reader import read_space
from workbench.space.space import size
from workbench.values.dimension import FUSION_PREFIX
from workbench.values.documents.yaml_reader import is_pipeline
from workbench.values.errors import ConfigError

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *(ROOT / f"{n}.md" for n in ("README", "README.zh", "ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
        *DOCS.rglob("*.md"),
    ]
)
TARGETS = ("ascend910b3", "onnxruntime", "openvino")
DIMENSIONS = {name for target in TARGETS for name in dimensions_of(target)}
OURS = [p for p in PAGES if p.parent.name != "reference"]
"""The pages about the workbench; the others are about the vendors."""
CHINESE = [ROOT / "README.zh.md", *sorted((DOCS / "zh").glob("*.md"))]
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]  # a click group
WRITTEN = {"intent", "NAME", "Qwen3-0.6B"}
"""Experiments that `init` writes for a reader."""
SETTINGS = re.compile(r"`((?:precision|quantization|compile|serving)\.[A-Za-z0-9_.]+)`")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code(page: Path) -> list[str]:
    """The lines of a page's blocks of code, and its inline code."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [*(line for block in blocks for line in block.splitlines()), *inline]


def calls(page: Path) -> list[tuple[str, str]]:
    """(command, what follows it) of every call of the workbench in a page's code."""
    found = (
        re.match(r"(?:eval \"\$\()?(?:\.venv/bin/)?workbench ([a-z][a-z-]*)(.*)", line.strip()) for line in code(page)
    )
    return [(m[1], m[2].split("#")[0]) for m in found if m]


def options_of(command: str) -> set[str]:
    """Of the command, and of those inside of a group."""
    found = COMMANDS[command]
    inside = [*getattr(found, "commands", {}).values()]
    return {o for one in (found, *inside) for p in one.params for o in [*p.opts, *p.secondary_opts]} | {"--help"}


@pytest.mark.parametrize("page", OURS, ids=name_of)
def test_every_command_option_file_variable_and_setting_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for command, rest in calls(page):
        assert command in COMMANDS
        if command != "emulator":  # hands its options on to the program that it starts
            assert set(re.findall(r"--[a-z][a-z0-9-]*", rest)) <= options_of(command), (command, rest)
    folders = "experiments|search_spaces|calibration|workbench|tests|docs|benchmarks"
    files = {
        p for line in code(page) for p in re.findall(rf"(?<![\w./-])((?:{folders})/[\w./*-]*\w[*\w]*(?:/)?)", line)
    }
    assert [p for p in sorted(files) if not any(ROOT.glob(p.rstrip("/"))) and Path(p).stem not in WRITTEN] == []
    assert set(re.findall(r"WORKBENCH_[A-Z_]+[A-Z]", text)) <= variables()
    assert set(SETTINGS.findall(text)) - DIMENSIONS <= {f"{FUSION_PREFIX}NAME", "compile.batches"}


def test_the_page_of_commands_misses_none() -> None:
    table = re.findall(r"^\| `workbench ([a-z-]+)", (DOCS / "commands.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(table) == sorted(COMMANDS)


def test_help_lists_every_command_under_what_it_is_for_in_the_order_of_use() -> None:
    listed = list(COMMANDS)
    panels = [command.rich_help_panel for command in COMMANDS.values()]

    assert list(dict.fromkeys(panels)) == list(TASKS)
    assert listed.index("doctor") < listed.index("sweep") < listed.index("export") < listed.index("serve")


def test_help_shows_few_options_first_and_defaults_in_one_style() -> None:
    for name, command in COMMANDS.items():
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        assert len([p for p in options if p.rich_help_panel is None]) <= 12, name
        assert [p.name for p in options if "default: " in (p.help or "")] == [], name
    assert {"Service", "Server", "Limits", "Output"} <= {p.rich_help_panel for p in COMMANDS["load"].params[1:]}
    groups = [one for command in COMMANDS.values() for one in (command, *getattr(command, "commands", {}).values())]
    named = {p.name for command in groups for p in command.params}
    assert {name.rpartition(".")[2] for names in _PANELS.values() for name in names.split()} <= named


def test_the_readme_is_short_and_its_chinese_form_shows_the_same_commands_and_pictures() -> None:
    english, chinese = ROOT / "README.md", ROOT / "README.zh.md"
    pictures = re.compile(r"!\[[^]]*\]\(([^)]+)\)")

    assert len(english.read_text(encoding="utf-8").splitlines()) <= 150
    assert [line.split("#")[0] for line in code(english) if "bin/" in line] == [
        line.split("#")[0] for line in code(chinese) if "bin/" in line
    ]
    assert pictures.findall(english.read_text(encoding="utf-8")) == pictures.findall(
        chinese.read_text(encoding="utf-8")
    )


def test_the_readmes_experiment_is_the_one_that_init_writes_for_its_model() -> None:
    (model,) = {m[1] for line in code(ROOT / "README.md") if (m := re.search(r"workbench init (\S+)", line))}
    named = {m[1] for line in code(ROOT / "README.md") if (m := re.search(r"(?:sweep|show|export) (\S+yaml)", line))}
    assert named == {f"experiments/{_name_of(Path(model))}.yaml"}


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_a_chinese_page_has_an_english_one_and_shows_no_call_that_english_pages_do_not(page: Path) -> None:
    assert (ROOT / name_of(page).replace(".zh", "").replace("zh/", "")).exists()
    shown = {call for other in OURS if other not in CHINESE for call in calls(other)}
    assert [call for call in calls(page) if call not in shown] == []


def test_the_make_targets_of_the_readme_exist() -> None:
    for target in ("quickstart", "test", "docs"):
        assert f"make {target}" in (ROOT / "README.md").read_text(encoding="utf-8")
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """Of a page's headings, as the repository's site and ours make them."""
    text = page.read_text(encoding="utf-8")
    for included in re.findall(r"```\{include\} (\S+)", text):
        text += (page.parent / included).read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", DOCS / "decisions.md", DOCS / "extending.md"], ids=name_of)
def test_every_module_that_a_page_names_by_its_room_exists(page: Path) -> None:
    rooms = "|".join(p.parent.name for p in (ROOT / "workbench").glob("*/__init__.py"))
    named = {m[1] for span in code(page) if (m := re.fullmatch(rf"((?:{rooms})/[\w/.]+)", span))}
    assert [name for name in sorted(named) if not any((ROOT / "workbench").glob(f"{name.rstrip('/')}*"))] == []


@cache
def variables() -> set[str]:
    files = (ROOT / "workbench").rglob("*.py")
    return {name for file in files for name in re.findall(r"WORKBENCH_[A-Z_]+[A-Z]", file.read_text(encoding="utf-8"))}


def test_the_page_of_search_spaces_names_every_dimension_and_no_other() -> None:
    text = (DOCS / "search-spaces.md").read_text(encoding="utf-8")
    table = text[text.index("## The dimensions") : text.index("## Sequence bins")]
    known = {name if not name.startswith(FUSION_PREFIX) else f"{FUSION_PREFIX}NAME" for name in DIMENSIONS}

    assert set(SETTINGS.findall(table)) == known


@pytest.mark.parametrize("file", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_experiment_is_read_or_says_how_to_build_its_example(file: Path) -> None:
    written = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    if "stages" in written:
        assert is_pipeline(file)
        return  # its samples need packages that tests do not
    model = Path(written["model"])
    example = model.parent.name
    if "real-models" in model.parts:  # where it was fetched, its samples may still need packages that tests do not
        if not (file.parent / model).exists():
            with pytest.raises(ConfigError, match=r"experiments/models\.md says"):
                read_experiment(file)
    elif (ROOT / ".workbench" / "examples" / example / "model.onnx").exists():
        assert read_experiment(file).name == file.stem
    else:
        with pytest.raises(ConfigError, match=f"Build it with: workbench example {example}"):
            read_experiment(file)


def test_every_yaml_file_is_commented_for_a_newcomer_and_every_space_is_sound() -> None:
    for folder in ("calibration", "experiments", "search_spaces"):
        for file in (ROOT / folder).glob("*.yaml"):
            text = file.read_text(encoding="utf-8")
            assert text.startswith("#"), file
            assert YAML(typ="safe").load(text)["version"] == 1
            assert folder != "search_spaces" or size(read_space(file)).candidates > 1


READERS = {
    "Experiment": ("inputs/experiment", "targets/ascend/description"),
    "`service`": ("space/service_reader:read_question", "space/service_reader:_load", "space/service_reader:_host"),
    "Dataset manifest": tuple(
        f"inputs/dataset/{n}"
        for n in ("manifest", "interface_reader", "metric_reader", "retrieval", "language", "splits")
    ),
    "Search space": ("space/reader", "space/service_reader:read_choices", "space/service_reader:_today"),
    "Cluster file": ("search/executors/ray/connection",),
    "Baseline of another platform": ("shipping/acceptance/baseline",),
}
"""Section of the page of keys → the code that reads them: modules, or functions of one."""
ASKS = re.compile("has|raw|text|name|integer|number|flag|seconds|file_path|texts|integers|sections?|items|optional")


def read_keys(place: str) -> set[str]:
    """The keys that a reader asks a section for by name."""
    module, _, function = place.partition(":")
    tree: ast.AST = ast.parse((ROOT / "workbench" / f"{module}.py").read_text(encoding="utf-8"))
    if function:
        tree = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == function)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.args]
    asked = [n.args[0] for n in calls if isinstance(n.func, ast.Attribute) and ASKS.fullmatch(n.func.attr)]
    return {n.value for n in asked if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_every_key_that_a_file_may_have_is_on_the_page_of_keys_and_no_other() -> None:
    page = (DOCS / "keys.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^###? (.+?)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    for heading, places in READERS.items():
        first = re.findall(r"^\| (`.+?) \|", sections[heading], re.MULTILINE)
        shown = {part.strip("[]") for row in first for key in re.findall(r"`([^`]+)`", row) for part in key.split(".")}
        source = "".join((ROOT / "workbench" / f"{p.split(':')[0]}.py").read_text(encoding="utf-8") for p in places)
        asked = set().union(*map(read_keys, places)) - {"version", "warm_start"}

        assert asked - shown == set(), heading
        for key in shown:
            assert key.isupper() or key == "…" or re.search(rf"\b{key}\b", source), (heading, key)


def test_every_table_ships_and_is_named_by_a_module_beside_it() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"**/*.json"' in declared
    for file in (ROOT / "workbench").rglob("*.json"):
        assert any(f'"{file.name}"' in module.read_text(encoding="utf-8") for module in file.parent.glob("*.py")), file


def test_every_option_variable_and_command_that_the_security_page_promises_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    sources = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "workbench").rglob("*.py"))
    for option in set(re.findall(r"--[a-z][a-z-]+", text)) - {"--format", "--generate-hashes"}:  # git's and uv's
        parameter = option.removeprefix("--").replace("-", "_")
        assert f'"{option}' in sources or re.search(rf"^    {parameter}: ", sources, re.MULTILINE), option
    for variable in set(re.findall(r"WORKBENCH_[A-Z_]+", text)):
        assert f'"{variable}"' in sources, variable
    for name in set(re.findall(r"`workbench ([a-z][a-z-]*)", text)):
        assert re.search(rf"^def {name.replace('-', '_')}\(", sources, re.MULTILINE), name
