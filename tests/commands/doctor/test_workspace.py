import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.commands.doctor.finding import exit_code
from workbench.commands.doctor.machine import disk_finding, tracking_findings, workspace_findings
from workbench.values.finding import Finding


def found(workspace: Path) -> dict[str, Finding]:
    return {finding.name: finding for finding in workspace_findings(workspace)}


def test_a_workspace_that_is_not_there_yet_can_be_created(tmp_path: Path) -> None:
    findings = found(tmp_path / "not" / "there")

    assert [f.status for f in findings.values()][1:] == ["ok", "ok"]
    assert findings[".workbench"].value == "cache and journals: will be created"


def test_a_workspace_that_is_a_file_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert exit_code(found(tmp_path / "file").values()) == 1


def test_a_file_in_the_place_of_a_folder_fails_and_stays(tmp_path: Path) -> None:
    (tmp_path / "mlruns").write_text("a file in the way")
    (tmp_path / ".workbench").mkdir()

    findings = found(tmp_path)

    assert (findings["mlruns"].status, findings[".workbench"].status) == ("fail", "ok")
    assert "cannot be written" in findings["mlruns"].value
    assert findings[".workbench"].value == "cache and journals: writable"
    assert (tmp_path / "mlruns").read_text() == "a file in the way"


def test_a_link_to_nowhere_fails(tmp_path: Path) -> None:
    (tmp_path / ".workbench").symlink_to(tmp_path / "gone" / "away")

    assert found(tmp_path)[".workbench"].status == "fail"


def test_a_read_only_mount_fails_even_for_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a read-only mount needs root")
    code = (
        "from pathlib import Path\nfrom workbench.commands.doctor.machine import workspace_findings\n"
        f"print([f.status for f in workspace_findings(Path('{tmp_path}'))])"
    )
    script = f'mount -t tmpfs -o ro tmpfs {tmp_path} && exec {sys.executable} -c "{code}"'

    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=300)

    if not done.stdout:
        pytest.skip(f"no private mount here: {done.stderr.strip()}")
    assert done.stdout.strip().endswith("'fail', 'fail']")


def test_disk_space_is_judged() -> None:
    sizes = (250_000_000, 1_000_000_000, 50_000_000_000)

    assert [disk_finding("workspace", size).status for size in sizes] == ["fail", "warn", "ok"]


def test_without_a_server_nothing_is_said_of_one(tmp_path: Path) -> None:
    assert list(tracking_findings(tmp_path)) == []


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ("http://127.0.0.1:9", "MLflow's server http://127.0.0.1:9 failed: the connection was refused"),
        ("mlruns", "MLFLOW_TRACKING_URI: 'mlruns' is no address of an MLflow server"),
    ],
)
def test_a_server_that_cannot_be_used_is_a_warning_with_what_to_do(
    address: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    (finding,) = tracking_findings(tmp_path)

    assert finding.status == "warn"
    assert finding.value.startswith(value)
    assert finding.remedy
