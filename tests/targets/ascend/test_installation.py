"""Layouts of atc.md §7.1 and pyacl.md §6.5."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.targets.ascend.installation import (
    cann_problem,
    driver_problem,
    find_installation,
    read_installation,
    same_release,
)
from workbench.values.errors import ToolchainError
from workbench.values.versions import version_key

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


@pytest.mark.parametrize("version", ["8.5.1", "8.1.RC1", "9.0.0", "8.5.0.alpha002", "8.5.T8.0.B060", "7.6.0.1.220"])
def test_another_release_of_cann_is_named_beside_the_wanted_one(version: str) -> None:
    assert cann_problem(version) == f"CANN {version}, wanted 8.5.0"
    assert [cann_problem(build) for build in ("8.5.0", "8.5.0.2.220", "8.5")] == ["", "", ""]
    assert "unknown version" in cann_problem("")


def test_drivers_before_25_2_0_are_too_old_and_unknown_ones_a_problem() -> None:
    assert [driver_problem(version) for version in ("25.2.0", "25.2", "25.10.0", "25.3.rc1")] == [""] * 4
    assert all(driver_problem(version) for version in ("25.2.rc1", "24.1.rc3"))
    assert "unknown version (?)" in driver_problem("?")


@settings(deadline=None)
@given(numbers=st.lists(st.integers(0, 99), min_size=3, max_size=3), build=st.integers(1, 999))
def test_a_build_is_newer_than_its_release_and_of_the_same_release(numbers: list[int], build: int) -> None:
    release = ".".join(map(str, numbers))

    assert version_key(f"{release}.{build}") > version_key(release) > version_key(f"{release}.rc1")
    assert same_release(f"{release}.{build}", release)
    assert not same_release(f"{release}.rc1", release)
