import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workbench.space import dimensions
from workbench.targets import described, device_count, open_target, target_names
from workbench.values import installed_targets
from workbench.values.errors import ConfigError, ToolchainError

Install = Callable[[str, str, str, str], None]
"""(distribution, target, module, its source)"""


@contextmanager
def installing(folder: Path) -> Iterator[Install]:
    def put(distribution: str, target: str, module: str, source: str) -> None:
        info = folder / f"{distribution}-1.2.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[workbench.targets]\n{target} = {module}:TARGET\n")
        (folder / f"{module}.py").write_text(source)
        sys.modules.pop(module, None)
        _forget()

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield put
    _forget()


def _forget() -> None:
    installed_targets._entries.cache_clear()
    installed_targets.installed_target.cache_clear()
    dimensions.dimensions_of.cache_clear()


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    with installing(tmp_path) as put:
        yield put


def test_our_own_targets_are_registered_as_anybodys_are() -> None:
    assert set(target_names()) >= {"ascend910b3", "onnxruntime", "openvino"}
    for name in ("ascend910b3", "onnxruntime", "openvino"):
        assert described(name).name == name == open_target(name).name
        assert described(name).on_host == (name != "ascend910b3")
    assert device_count("onnxruntime") == 1
    with pytest.raises(ConfigError, match=r"'onxruntime' is not a target.*'onnxruntime'"):
        described("onxruntime")


def test_a_target_that_cannot_be_used_is_named_and_disturbs_no_other(install: Install) -> None:
    other = "from workbench.targets import described\nTARGET = described('onnxruntime')\n"
    for source, said in (
        ("import not_there\n", r"'acme' of acme-int8 1\.2 .*No module named 'not_there'"),
        ("TARGET = 'acme'\n", "is a str, not the TargetDescription of 'acme'"),
        (other, "is the target 'onnxruntime', not the TargetDescription of 'acme'"),
    ):
        install("acme-int8", "acme", "acme_broken", source)
        assert "acme" in target_names()
        with pytest.raises(ToolchainError, match=said):
            described("acme")
    assert described("onnxruntime").name == "onnxruntime"


def test_two_distributions_with_one_name_are_both_named_where_it_is_used(install: Install) -> None:
    install("acme-int8", "acme", "acme_one", "TARGET = 1\n")
    install("other-int8", "acme", "acme_two", "TARGET = 2\n")

    with pytest.raises(ConfigError, match=r"acme-int8 1\.2.* other-int8 1\.2|other-int8 1\.2.* acme-int8 1\.2"):
        described("acme")
    assert open_target("onnxruntime").name == "onnxruntime"
