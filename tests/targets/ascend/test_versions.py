import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.targets.ascend.installation import cann_problem, driver_problem, same_release
from workbench.values.versions import version_key

RELEASED = ["?", "23.0.6", "24.1.rc3", "24.1.0", "25.2.0", "25.3.rc1", "25.3.rc2", "25.3.0", "25.3.1", "25.10.0"]


def test_versions_are_ordered_as_the_vendor_released_them() -> None:
    assert sorted(reversed(RELEASED), key=version_key) == RELEASED


@pytest.mark.parametrize(("one", "other"), [("25.2", "25.2.0"), ("25.3.RC1", "25.3.rc1"), ("8.1.RC1", "8.1rc1")])
def test_spellings_of_one_version_are_equal(one: str, other: str) -> None:
    assert version_key(one) == version_key(other)


@pytest.mark.parametrize("version", ["8.5.0", "8.5.0.2.220", "8.5"])
def test_builds_of_8_5_0_are_accepted(version: str) -> None:
    assert cann_problem(version) == ""


@pytest.mark.parametrize("version", ["8.5.1", "8.1.RC1", "9.0.0", "8.5.0.alpha002", "8.5.T8.0.B060", "7.6.0.1.220"])
def test_another_release_of_cann_is_named_beside_the_wanted_one(version: str) -> None:
    assert cann_problem(version) == f"CANN {version}, wanted 8.5.0"


def test_an_unknown_version_is_a_problem_and_never_accepted() -> None:
    assert "unknown version" in cann_problem("")
    assert "unknown version" in driver_problem("")
    assert "unknown version (?)" in driver_problem("?")


@pytest.mark.parametrize(
    ("version", "enough"),
    [("25.2.0", True), ("25.2", True), ("25.10.0", True), ("25.3.rc1", True), ("25.2.rc1", False), ("24.1.rc3", False)],
)
def test_drivers_before_25_2_0_are_too_old(version: str, enough: bool) -> None:
    assert (driver_problem(version) == "") is enough


@settings(deadline=None)
@given(numbers=st.lists(st.integers(0, 99), min_size=3, max_size=3), build=st.integers(1, 999))
def test_a_build_is_newer_than_its_release_and_of_the_same_release(numbers: list[int], build: int) -> None:
    release = ".".join(map(str, numbers))

    assert version_key(f"{release}.{build}") > version_key(release) > version_key(f"{release}.rc1")
    assert same_release(f"{release}.{build}", release)
    assert not same_release(f"{release}.rc1", release)


@settings(deadline=None)
@given(texts=st.lists(st.text(max_size=20), max_size=5))
def test_any_texts_have_an_order(texts: list[str]) -> None:
    assert sorted(sorted(texts, key=version_key), key=version_key) == sorted(texts, key=version_key)
