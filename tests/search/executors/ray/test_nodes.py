"""What a user may say of a cluster, and which nodes are refused. Needs no Ray."""

from dataclasses import replace
from pathlib import Path

import pytest

from workbench import __version__
from workbench.evaluation.sweep_folders import open_journal
from workbench.search.executors.ray.connection import ClusterSettings, cluster_settings
from workbench.search.executors.ray.host import _seen, on_this_disk
from workbench.search.executors.ray.nodes import difference
from workbench.values.artifact import Toolchain
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError, ToolchainError

FILE = """
version: 1
address: 10.0.0.1:6379
store: s3://team/workbench
cards: 8
processors_per_card: 2
compile: {slots: 4}
timeouts: {card: 3m, silent: 30m}
environment: {ASCEND_HOME: /opt}
"""


def test_an_address_or_a_file_says_which_cluster(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE, encoding="utf-8")

    assert cluster_settings("auto") == ClusterSettings(address="auto")
    assert cluster_settings("head.team:6379").address == "head.team:6379"
    assert cluster_settings(str(file)) == ClusterSettings(
        address="10.0.0.1:6379",
        store="s3://team/workbench",
        cards=8,
        processors_per_card=2,
        compile_slots=4,
        card_s=180.0,
        silent_s=1800.0,
        environment={"ASCEND_HOME": "/opt"},
    )


def test_what_is_no_cluster_is_refused_with_a_hint() -> None:
    for text in ("", "here", "10.0.0.1", "ray://head:10001", "nowhere.yaml"):
        with pytest.raises(ConfigError) as refused:
            cluster_settings(text)
        assert refused.value.hint or "does not exist" in str(refused.value) or "No such file" in str(refused.value)


def test_all_that_is_wrong_in_a_file_is_said_at_once_with_lines(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "version: 1\naddress: nowhere\ncards: 0\ntimeout: 3s\ncompile: {slots: -1, label: a}\nenvironment: {1A: x}\n",
        encoding="utf-8",
    )

    with pytest.raises(ConfigError) as refused:
        cluster_settings(str(file))

    said = str(refused.value)
    for part in ("address", "cards", "timeout", "compile.slots", "compile.label", "environment.1A", "line 3"):
        assert part in said


def test_a_node_that_differs_is_refused_by_component_and_version() -> None:
    here = Toolchain(target="t", components={"compiler": "8.0", "driver": "24.1"}, device="card")

    def said(there: Toolchain, version: str = __version__) -> str:
        return difference({"version": version, "toolchains": {"t": encode(there)}}, {"t": here})

    assert said(here) == ""
    assert said(replace(here, components={"compiler": "8.1", "driver": "24.1"})) == "compiler 8.1 there, 8.0 here"
    assert said(replace(here, components={"compiler": "8.0"})) == "driver none there, 24.1 here"
    assert said(replace(here, device="other")) == "other there, card here"
    assert "emulated there" in said(replace(here, emulated=True))
    assert said(here, version="0.0") == f"workbench 0.0 there, {__version__} here"


def test_a_node_that_does_not_see_the_workspace_says_so(tmp_path: Path) -> None:
    here = open_journal(tmp_path / "driver", "tiny", "0" * 64)
    other = open_journal(tmp_path / "other", "tiny", "1" * 64)
    opening = on_this_disk({"journal": str(here.root)})

    assert _seen(opening) == opening
    for elsewhere in (tmp_path / "not there", other.root):
        with pytest.raises(ToolchainError, match=r"does not see .* Keep the workspace on a disk that all machines"):
            _seen({**opening, "journal": str(elsewhere)})
