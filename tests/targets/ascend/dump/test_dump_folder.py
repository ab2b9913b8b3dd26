"""Which files an execution left, whatever else lies beside them."""

from pathlib import Path

import pytest

from workbench.targets.ascend.dump import dump_file
from workbench.targets.ascend.dump.dump_file import executions, is_dump
from workbench.values.errors import ConfigError, MeasureError


def file(root: Path, place: str, name: str) -> Path:
    folder = root / place
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / name
    made.write_bytes(b"")
    return made


def test_executions_are_told_in_the_order_of_time_and_their_operators_too(tmp_path: Path) -> None:
    file(tmp_path, "20261123101112/0/bert/1/1", "Add.a_b.3.0.1795446940563700")
    file(tmp_path, "20261123101112/0/bert/1/0", "MatMul.late.0.0.1795446940563602")
    file(tmp_path, "20261123101112/0/bert/1/0", "Softmax.a.b.9.5.1795446940563601")

    found = executions(tmp_path)

    assert [(one.model, one.index) for one in found] == [("bert", 0), ("bert", 1)]
    assert [(f.op_type, f.op_name, f.task, f.stream) for f in found[0].files] == [
        ("Softmax", "a.b", 9, 5),
        ("MatMul", "late", 0, 0),
    ]


def test_a_name_that_the_file_system_could_not_take_comes_from_the_mapping(tmp_path: Path) -> None:
    place = "20261123101112/0/bert/1/0"
    file(tmp_path, place, "00000000000000001795446940563602")
    long = f"Add.{'x' * 300}.4.0.1795446940563602"
    (tmp_path / place / "mapping.csv").write_text(f"00000000000000001795446940563602,{long}\nno comma\n")

    ((one,),) = [execution.files for execution in executions(tmp_path)]

    assert (one.op_name, one.task) == ("x" * 300, 4)
    assert one.path.name == "00000000000000001795446940563602"


def test_statuses_tables_notes_and_links_are_no_operators(tmp_path: Path) -> None:
    place = "20261123101112/0/m/1/0"
    kept = file(tmp_path, place, "Add.a.1.0.1795446940563602")
    for name in ("Opdebug.Node_OpDebug.5.0.1795446940563603", "Add.a.1.0.1795446940563602.csv", "notes.txt", ".draft"):
        file(tmp_path, place, name)
    (tmp_path / place / "Mul.link.2.0.1795446940563602").symlink_to(kept)
    file(tmp_path, "20261123101112/0/m/one/0", "Add.a.1.0.1795446940563602")  # no model id
    (tmp_path / "20261123101113").symlink_to(tmp_path / "20261123101112")
    (tmp_path / "elsewhere").mkdir()

    assert [f.path for one in executions(tmp_path) for f in one.files] == [kept]


def test_a_folder_without_a_dump_is_refused_with_what_it_should_hold(tmp_path: Path) -> None:
    assert not is_dump(tmp_path)
    assert not is_dump(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no dump of a model is in this folder"):
        executions(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_file, "MOST_FILES", 2)  # the bound itself takes minutes to reach
    for task in range(3):
        file(tmp_path, "20261123101112/0/m/1/0", f"Add.a.{task}.0.1795446940563602")
    with pytest.raises(MeasureError, match="more than 2 dump files"):
        executions(tmp_path)
