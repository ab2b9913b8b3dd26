"""What this machine can do, as findings of `doctor`: of packages, together, and as they are shown."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from workbench.commands.doctor import Finding, examine, exit_code, findings_json, findings_table


def test_this_machine_is_usable_int8_really_ran_and_what_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    findings = examine(tmp_path / "not" / "there")
    usable = next(f for f in findings if (f.group, f.name) == ("target onnxruntime", "usable"))
    assert exit_code(findings) == 0
    assert usable.status == "ok"
    assert "a test layer was quantized, compiled and run" in usable.value
    for finding in findings:
        assert finding.value
        assert (finding.status == "ok") == (finding.remedy == ""), finding
    groups = [finding.group for finding in findings]
    assert groups == [group for group in dict.fromkeys(groups) for _ in range(groups.count(group))]
    assert len({(f.group, f.name) for f in findings}) == len(findings)
    assert list(tmp_path.iterdir()) == [], "looking writes nothing into the workspace"


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


def test_missing_packages_are_findings_although_most_modules_need_them(tmp_path: Path) -> None:
    hide = """\
import importlib.metadata
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "onnx", "rich"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
there = importlib.metadata.version
def version(name):
    if name in HIDDEN:
        raise importlib.metadata.PackageNotFoundError(name)
    return there(name)
importlib.metadata.version = version
"""
    said = examined_in_a_process(f"HIDDEN = ('numpy', 'onnx', 'rich', 'torch')\n{hide}")
    assert "exit code 1" in said
    assert "packages|required|fail|missing: numpy, onnx, rich\n" in said
    assert "packages|export|warn|missing: torch\n" in said
    assert "machine|" not in said
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libonnxruntime.so is missing')")
    damaged = examined_in_a_process(f"sys.path.insert(0, {str(tmp_path)!r})")
    assert "exit code 1" in damaged
    assert "packages|loading|fail|libonnxruntime.so is missing" in damaged


def test_findings_are_shown_as_they_are_and_to_programs() -> None:
    made = (
        Finding(group="machine", name="CPU", status="ok", value="a [bold]bracketed[/bold] CPU"),
        Finding(group="packages", name="export", status="warn", value="missing: torch", remedy="pip install 'a[x]'"),
        Finding(group="workspace [x]", name="disk", status="fail", value="0.1 GB free", remedy="Free some space."),
    )
    assert (exit_code(made[:2]), exit_code(made)) == (0, 1)
    data = json.loads(json.dumps(findings_json(made)))
    assert (data["version"], data["usable"], len(data["findings"])) == (1, False, 3)
    assert list(data["findings"][2].values()) == ["workspace [x]", "disk", "fail", "0.1 GB free", "Free some space."]
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(findings_table(made))
    text = console.export_text()
    assert "a [bold]bracketed[/bold] CPU" in text
    assert "→ pip install 'a[x]'" in text
    assert text.index("machine") < text.index("workspace [x]") < text.index("0.1 GB free")
