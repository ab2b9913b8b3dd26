import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.cann_emulator.atc.checks import check_output
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.targets.ascend.atc.atc import place_model, refused_characters, work_directory


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


def test_work_is_done_in_the_temporary_folder_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))

    with work_directory(tmp_path / "a b", "atc") as made:
        assert made.parent == (tmp_path / "tmp").resolve()


def test_a_link_with_a_safe_name_to_an_unsafe_path_is_not_trusted(tmp_path: Path) -> None:
    """ATC resolves the input's path first (atc.md §5.4)."""
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "m.onnx").write_bytes(b"onnx")
    (tmp_path / "link.onnx").symlink_to(tmp_path / "a b" / "m.onnx")
    (tmp_path / "root").mkdir()

    placed = place_model(tmp_path / "link.onnx", tmp_path / "root")

    assert placed.is_relative_to(tmp_path / "root")
    assert placed.read_bytes() == b"onnx"
