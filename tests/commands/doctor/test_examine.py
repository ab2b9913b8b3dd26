"""What this machine can do, as findings of `doctor`: of packages, together, and as they are shown."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from workbench.commands.doctor import Finding, examine, exit_code, findings_json, findings_table
from workbench.commands.doctor.finding import BASE_PACKAGES, EXPORT_PACKAGES, package_findings, python_finding


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finding, ...]:
    return examine(tmp_path_factory.mktemp("workspace"))


def test_this_machine_is_usable_int8_really_ran_and_what_is_not_ok_says_what_to_do(
    findings: tuple[Finding, ...],
) -> None:
    usable = next(f for f in findings if (f.group, f.name) == ("target onnxruntime", "usable"))
    assert exit_code(findings) == 0
    assert usable.status == "ok"
    assert "a test layer was quantized, compiled and run" in usable.value
    assert {f.status for f in findings} <= {"ok", "warn", "fail"}
    for finding in findings:
        assert finding.value
        assert (finding.status == "ok") == (finding.remedy == ""), finding
    groups = [finding.group for finding in findings]
    assert groups == [group for group in dict.fromkeys(groups) for _ in range(groups.count(group))]
    assert len({(f.group, f.name) for f in findings}) == len(findings)


def test_looking_writes_nothing_into_the_workspace(tmp_path: Path) -> None:
    examine(tmp_path / "not" / "there")

    assert list(tmp_path.iterdir()) == []


def examined_in_a_process(before: str) -> str:
    """What a fresh interpreter says after running the lines `before`."""
    code = f"""\
import sys
from pathlib import Path
{before}
from workbench.commands.doctor import examine, exit_code
findings = examine(Path())
print("exit code", exit_code(findings))
for f in findings:
    print(f.group, f.name, f.status, f.value, sep="|")
print("loaded", *(m for m in ("torch", "transformers", "mlflow", "optuna", "numpy") if m in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def test_the_examination_imports_none_of_the_heavy_libraries() -> None:
    assert examined_in_a_process("").endswith("loaded numpy\n")


def test_missing_packages_are_findings_although_most_modules_need_them() -> None:
    hide = """\
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "onnx", "psutil", "rich", "ruamel"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())"""

    said = examined_in_a_process(hide)

    assert "exit code 1" in said
    assert "packages|required|fail|missing: numpy, onnx, ruamel.yaml, rich, psutil" in said
    assert "machine|" not in said


def test_a_package_that_cannot_be_loaded_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libonnxruntime.so is missing')")
    said = examined_in_a_process(f"sys.path.insert(0, {str(tmp_path)!r})")
    assert "exit code 1" in said
    assert "packages|loading|fail|libonnxruntime.so is missing" in said


MADE = (
    Finding(group="machine", name="CPU", status="ok", value="a [bold]bracketed[/bold] CPU"),
    Finding(group="packages", name="export", status="warn", value="missing: torch", remedy="pip install 'a[export]'"),
    Finding(group="workspace [x]", name="disk", status="fail", value="0.1 GB free", remedy="Free some space."),
)


def test_the_json_form_says_whether_the_machine_is_usable_and_so_does_the_exit_code() -> None:
    assert (exit_code(MADE[:2]), exit_code(MADE)) == (0, 1)
    data = json.loads(json.dumps(findings_json(MADE)))
    assert (data["version"], data["usable"], len(data["findings"])) == (1, False, 3)
    assert list(data["findings"][2].values()) == ["workspace [x]", "disk", "fail", "0.1 GB free", "Free some space."]
    assert findings_json(MADE[:2])["usable"] is True


def test_the_table_shows_groups_values_and_remedies_as_they_are() -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(findings_table(MADE))
    text = console.export_text()

    assert "a [bold]bracketed[/bold] CPU" in text
    assert "→ pip install 'a[export]'" in text
    assert text.index("machine") < text.index("workspace [x]") < text.index("0.1 GB free")


def found(base: tuple[str, ...], export: tuple[str, ...]) -> dict[str, Finding]:
    return {finding.name: finding for finding in package_findings(base, export)}


def test_an_old_python_cannot_be_used() -> None:
    assert [python_finding(v).status for v in ((3, 10, 9), (3, 11, 0), (3, 14, 1))] == ["fail", "ok", "ok"]
    assert "Install Python 3.11 or newer" in python_finding((3, 10, 9)).remedy


def test_the_packages_looked_for_are_those_the_project_requires() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> tuple[str, ...]:
        return tuple(re.split(r"[^\w.-]", requirement)[0] for requirement in requirements)

    assert names(project["dependencies"]) == BASE_PACKAGES
    assert names(project["optional-dependencies"]["export"]) == EXPORT_PACKAGES


def test_a_missing_optional_package_is_a_warning_and_a_required_one_fails() -> None:
    export = found((), ("numpy", "a_package_of_tomorrow"))["export"]
    assert (export.status, export.value) == ("warn", "missing: a_package_of_tomorrow")
    assert "-m pip install -e" in export.remedy
    assert "[export]" in export.remedy
    for missing in ("a_package_of_tomorrow", "a_package_of_tomorrow.yaml"):
        findings = found(("numpy", missing), ())
        assert exit_code(findings.values()) == 1
        assert findings["required"].value == f"missing: {missing}"


def test_packages_are_shown_with_their_versions_and_a_module_without_metadata_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "built_by_oneself.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    value = found(("numpy", "ruamel.yaml", "built_by_oneself"), ())["required"].value
    assert re.fullmatch(r"numpy \d\S+, ruamel\.yaml \d\S+, built_by_oneself", value)
