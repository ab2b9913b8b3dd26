import subprocess
import sys
from pathlib import Path

import pytest

from workbench.commands.doctor import Finding, examine, exit_code


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finding, ...]:
    return examine(tmp_path_factory.mktemp("workspace"))


def test_this_machine_is_usable_and_int8_really_ran(findings: tuple[Finding, ...]) -> None:
    usable = next(f for f in findings if (f.group, f.name) == ("target onnxruntime", "usable"))

    assert exit_code(findings) == 0
    assert usable.status == "ok"
    assert "a test layer was quantized, compiled and run" in usable.value


def test_every_finding_that_is_not_ok_says_what_to_do(findings: tuple[Finding, ...]) -> None:
    assert {f.status for f in findings} <= {"ok", "warn", "fail"}
    for finding in findings:
        assert finding.value
        assert (finding.status == "ok") == (finding.remedy == ""), finding


def test_findings_of_a_group_stand_together_under_names_of_their_own(findings: tuple[Finding, ...]) -> None:
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


@pytest.mark.parametrize(
    ("package", "finding"),
    [
        ("onnx", "packages|loading|fail|libonnx.so is missing"),
        ("onnxruntime", "packages|loading|fail|libonnxruntime.so is missing"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_a_finding(tmp_path: Path, package: str, finding: str) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ImportError('lib{package}.so is missing')")

    said = examined_in_a_process(f"sys.path.insert(0, {str(tmp_path)!r})")

    assert "exit code 1" in said
    assert finding in said
