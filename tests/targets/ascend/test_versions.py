import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.targets.ascend.installation import cann_problem, driver_problem, same_release
from workbench.values.versions import version_key


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
