"""atc.md §5.4 (path errors) and §6."""

import os
from pathlib import Path

import pytest

from workbench.cann_emulator.atc.checks import check_input, check_output
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


def test_an_input_is_judged_by_its_resolved_path_and_an_output_as_it_is_written(tmp_path: Path) -> None:
    odd = tmp_path / "odd folder"
    odd.mkdir()
    (odd / "m.onnx").write_text("x")
    Path("link.onnx").symlink_to(odd / "m.onnx")
    os.chdir(odd)

    assert "letters, digits" in reason(check_input, "m.onnx")
    assert "letters, digits" in reason(check_input, "../link.onnx")
    check_output("m", "output")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write anything")
def test_permissions_are_checked() -> None:
    Path("secret").write_text("x")
    Path("secret").chmod(0)

    assert "Permission denied" in reason(check_input, "secret")
    assert "Permission denied" in reason(check_output, "secret")
