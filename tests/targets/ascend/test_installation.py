"""Layouts of atc.md §7.1 and pyacl.md §6.5."""

from pathlib import Path

import pytest

from workbench.targets.ascend.installation import (
    find_installation,
    read_installation,
)
from workbench.values.errors import ToolchainError

KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel"


def write(file: Path, text: str = "", mode: int = 0o644) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def cann(home: Path, version: str = "8.5.0", place: str = "share/info/ge-compiler", more: str = "") -> Path:
    write(home / place / "version.info", f"package_name=x\nVersion={version}\n{more}")
    return home


def test_a_whole_installation_is_described(tmp_path: Path) -> None:
    cann(tmp_path, "8.5.0.2.220", more="version_dir=8.5.0\n")
    cann(tmp_path, "8.5.0.2.220", "opp")
    atc = write(tmp_path / "bin/atc", "#!/bin/sh\n", 0o755)
    write(tmp_path / KERNELS / "ascend910b/ops_legacy/bias_add/x.o")

    found = find_installation({"ASCEND_HOME_PATH": str(tmp_path), "PATH": "/nowhere"})

    assert (found.version, found.release, found.atc) == ("8.5.0.2.220", "8.5.0", atc)
    assert found.kernels == ("ascend910b",)
    assert dict(found.packages) == {"ge-compiler": "8.5.0.2.220", "opp": "8.5.0.2.220"}
    assert found.emulator is None


def test_the_version_is_taken_where_atc_looks_first(tmp_path: Path) -> None:
    cann(tmp_path, "8.2.RC1", "opp")
    cann(tmp_path, "8.3.RC1", "compiler")
    assert read_installation(tmp_path, {}).version == "8.3.RC1"
    cann(tmp_path, "8.4.0", "share/info/runtime")
    assert read_installation(tmp_path, {}).version == "8.4.0"
    cann(tmp_path, "8.5.0", "share/info/ge-compiler")
    assert read_installation(tmp_path, {}).version == "8.5.0"


@pytest.mark.parametrize(
    ("environment", "words"),
    [({}, "ASCEND_HOME_PATH is not set"), ({"ASCEND_HOME_PATH": "/gone"}, "/gone, which is no folder")],
)
def test_no_cann_says_how_to_get_one_and_how_to_rehearse(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ToolchainError, match=words) as caught:
        find_installation(environment)
    assert "set_env.sh" in str(caught.value)
    assert "workbench emulator env" in str(caught.value)
