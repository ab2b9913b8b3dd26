from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.values.installing import Install, installing
from workbench.targets import described, device_count, open_target, target_names
from workbench.values.errors import ConfigError, ToolchainError


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    with installing(tmp_path) as put:
        yield put


def test_our_own_targets_are_registered_as_anybodys_are() -> None:
    assert set(target_names()) >= {"ascend910b3", "onnxruntime", "openvino"}
    for name in ("ascend910b3", "onnxruntime", "openvino"):
        assert described(name).name == name == open_target(name).name


def test_a_target_on_the_host_has_one_device_and_says_so_without_its_library() -> None:
    assert described("onnxruntime").on_host
    assert device_count("onnxruntime") == 1
    assert not described("ascend910b3").on_host


def test_a_name_that_nobody_brings_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"'onxruntime' is not a target.*'onnxruntime'"):
        described("onxruntime")


def test_a_target_that_cannot_be_imported_is_named_with_its_distribution_and_disturbs_no_other(
    install: Install,
) -> None:
    install("acme-int8", "acme", "acme_broken", "import a_library_that_is_not_there\n")

    assert "acme" in target_names()
    with pytest.raises(ToolchainError, match=r"'acme' of acme-int8 1\.2 .*No module named 'a_library_that_is_not_th"):
        described("acme")
    assert described("onnxruntime").name == "onnxruntime"


def test_two_distributions_with_one_name_are_both_named_where_it_is_used(install: Install) -> None:
    install("acme-int8", "acme", "acme_one", "TARGET = 1\n")
    install("other-int8", "acme", "acme_two", "TARGET = 2\n")

    with pytest.raises(ConfigError, match=r"acme-int8 1\.2.* other-int8 1\.2|other-int8 1\.2.* acme-int8 1\.2"):
        described("acme")
    assert open_target("onnxruntime").name == "onnxruntime"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("TARGET = 'acme'\n", "is a str, not the TargetDescription of 'acme'"),
        (
            "from workbench.targets import described\nTARGET = described('onnxruntime')\n",
            "is the target 'onnxruntime', not the TargetDescription of 'acme'",
        ),
    ],
)
def test_an_entry_point_that_gives_something_else_is_refused(install: Install, source: str, said: str) -> None:
    install("acme-int8", "acme", "acme_strange", source)

    with pytest.raises(ToolchainError, match=said):
        described("acme")
