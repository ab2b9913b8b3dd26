"""atc.md §5.4 (path errors) and §6."""

import os
from pathlib import Path

import pytest

from workbench.cann_emulator.atc.checks import check_file_name, check_input, check_output
from workbench.cann_emulator.atc.failure import AtcFailure


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(check: object, path: str) -> AtcFailure:
    assert callable(check)
    with pytest.raises(AtcFailure) as caught:
        check(path, "model")
    return caught.value


def reason(check: object, path: str) -> str:
    record = refused(check, path).records[-1]
    assert record.code == "E10001"
    assert record.arguments["parameter"] == "--model"
    assert record.arguments["value"] == path
    return record.arguments["reason"]


def test_a_file_in_the_alphabet_may_be_read_and_written_and_no_other() -> None:
    for name in ("m.onnx", "模型.onnx", "a-b_c.1"):
        check_output(name, "output")
        Path(name).write_text("x")
        check_input(name, "model")
        check_output(name, "output")
    for character in " +=@~:;'\"\\(%*é\n":
        name = f"a{character}b"
        Path(name).write_text("x")
        assert "letters, digits" in reason(check_input, name)
        assert "letters, digits" in reason(check_output, name)


def test_the_matcher_reports_an_inner_error_first() -> None:
    """The headline is still E10001: the first record that is no inner error."""
    assert [record.code for record in refused(check_output, "a b").records] == ["E19999", "E10001"]


def test_a_missing_input_has_the_systems_text() -> None:
    assert reason(check_input, "none.onnx").endswith("No such file or directory")


def test_an_input_is_judged_by_its_resolved_path_and_an_output_as_it_is_written(tmp_path: Path) -> None:
    odd = tmp_path / "odd folder"
    odd.mkdir()
    (odd / "m.onnx").write_text("x")
    Path("link.onnx").symlink_to(odd / "m.onnx")
    os.chdir(odd)

    assert "letters, digits" in reason(check_input, "m.onnx")
    assert "letters, digits" in reason(check_input, "../link.onnx")
    check_output("m", "output")


def test_a_loop_of_links_cannot_be_resolved() -> None:
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")

    assert "Too many levels of symbolic links" in reason(check_input, "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write anything")
def test_permissions_are_checked() -> None:
    Path("secret").write_text("x")
    Path("secret").chmod(0)

    assert "Permission denied" in reason(check_input, "secret")
    assert "Permission denied" in reason(check_output, "secret")


def test_missing_folders_of_an_output_are_made() -> None:
    """§6: before the compile."""
    check_output("made/by/the.om", "output")

    assert Path("made/by").is_dir()
    assert not Path("made/by/the.om").exists()


def test_a_folder_that_cannot_be_made_is_told() -> None:
    Path("file").write_text("x")

    assert reason(check_output, "file/x/m.om").startswith("cannot create directory")


def test_an_empty_path_and_a_path_without_end() -> None:
    assert refused(check_input, "").records[0].code == "E10004"
    assert refused(check_output, "").records[0].code == "E10004"
    assert "4096" in reason(check_output, "a" * 4096)


def test_an_output_needs_a_file_name_of_bearable_length() -> None:
    check_file_name("folder/name", "output")
    assert refused(check_file_name, "folder/").records[0].code == "E10022"
    assert refused(check_file_name, "a" * 4097).records[0].code == "E10021"


def test_every_folder_that_is_made_is_its_owners_alone() -> None:
    """ge v8.5.0 base/common/util.cc makes each with read, write and execute for the owner."""
    check_output("one/two/three/the.om", "output")
    assert {oct(Path(folder).stat().st_mode & 0o777) for folder in ("one", "one/two", "one/two/three")} == {"0o700"}
