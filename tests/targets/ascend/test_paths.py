import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.cann_emulator.atc.checks import check_output
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.targets.ascend.atc import atc as paths
from workbench.targets.ascend.atc.atc import is_safe, place_model, refused_characters, work_directory
from workbench.values.errors import ToolchainError


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/work/a-b_c.d/m.onnx", []),
        ("/work/my model+x@y~:z", [" ", "+", ":", "@", "~"]),
        ("/work/模型", ["型", "模"]),
    ],
)
def test_letters_digits_and_four_signs_are_safe(path: str, refused: list[str]) -> None:
    """atc.md §5.4; Chinese characters pass ATC, and are avoided all the same."""
    assert refused_characters(path) == refused


def test_a_folder_that_looks_like_an_om_is_not_safe(tmp_path: Path) -> None:
    assert is_safe(tmp_path)
    assert not is_safe(tmp_path / "runs.om" / "a")
    assert not is_safe(tmp_path / "a b")


@given(name=st.text(string.ascii_letters + string.digits + "_- +@~:=模", min_size=1, max_size=20))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_readings_have_the_same_alphabet(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    refused = set(refused_characters(path)) - {"模"}
    if refused:
        with pytest.raises(AtcFailure):
            check_output(path, "output")
    else:
        check_output(path, "output")


def test_work_is_done_beside_the_result_where_the_path_allows(tmp_path: Path) -> None:
    with work_directory(tmp_path, "atc") as made:
        assert made.parent == tmp_path.resolve()
        assert list(made.iterdir()) == []

    assert list(tmp_path.iterdir()) == []


def test_work_is_done_in_the_temporary_folder_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    with work_directory(tmp_path / "a b", "atc") as made:
        assert made.parent == (tmp_path / "tmp").resolve()


def test_without_any_usable_folder_the_message_names_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "is_safe", lambda path: False)

    with pytest.raises(ToolchainError, match=r"a b .*refuses \[' '\].*Set TMPDIR"):
        work_directory(tmp_path / "a b", "atc").__enter__()


def test_a_model_with_a_safe_path_is_seen_under_one_name_and_not_copied(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    (tmp_path / "root").mkdir()

    placed = place_model(tmp_path / "m.onnx", tmp_path / "root")

    assert placed == tmp_path / "root" / "model" / "m.onnx"
    assert placed.resolve() == (tmp_path / "m.onnx").resolve()


def test_a_link_with_a_safe_name_to_an_unsafe_path_is_not_trusted(tmp_path: Path) -> None:
    """ATC resolves the input's path first (atc.md §5.4)."""
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "m.onnx").write_bytes(b"onnx")
    (tmp_path / "link.onnx").symlink_to(tmp_path / "a b" / "m.onnx")
    (tmp_path / "root").mkdir()

    placed = place_model(tmp_path / "link.onnx", tmp_path / "root")

    assert placed.is_relative_to(tmp_path / "root")
    assert placed.read_bytes() == b"onnx"
