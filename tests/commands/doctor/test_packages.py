import re
import tomllib
from pathlib import Path

import pytest

from workbench.commands.doctor.finding import (
    BASE_PACKAGES,
    EXPORT_PACKAGES,
    exit_code,
    package_findings,
    python_finding,
)
from workbench.values.finding import Finding


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


def test_installed_packages_are_shown_with_their_versions() -> None:
    value = found(("numpy", "ruamel.yaml", "scikit-learn"), ())["required"].value

    assert re.fullmatch(r"numpy \d\S+, ruamel\.yaml \d\S+, scikit-learn \d\S+", value)


def test_a_missing_optional_package_is_a_warning() -> None:
    export = found((), ("numpy", "a_package_of_tomorrow"))["export"]

    assert (export.status, export.value) == ("warn", "missing: a_package_of_tomorrow")
    assert "-m pip install -e" in export.remedy
    assert "[export]" in export.remedy


@pytest.mark.parametrize("missing", ["a_package_of_tomorrow", "a_package_of_tomorrow.yaml"])
def test_a_missing_required_package_fails(missing: str) -> None:
    findings = found(("numpy", missing), ())

    assert exit_code(findings.values()) == 1
    assert findings["required"].value == f"missing: {missing}"


def test_a_module_without_metadata_is_there_without_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "built_by_oneself.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    assert found(("built_by_oneself",), ())["required"].value == "built_by_oneself"
