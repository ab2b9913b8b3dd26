"""What each kernel takes of one execution."""

from pathlib import Path

from tests.targets.ascend.profiles.tables_of import HEADER, operator, put
from workbench.targets.ascend.profiles.tables import Reading
from workbench.targets.ascend.profiles.tasks import Tasks, kernel_us, read_tasks


def tasks(folder: Path, rows: list[str], header: str = HEADER) -> Tasks:
    return read_tasks([put(folder, rows, header=header)], Reading(left=1000))[0]


def test_kernels_add_up_to_the_execution_with_what_starts_them(tmp_path: Path) -> None:
    rows = [operator("a", 0, 10), operator("b", 12, 10), operator("c", 22, 5)]

    found = kernel_us(tasks(tmp_path, rows))

    assert found == {"a": 10, "b": 12, "c": 5}


def test_what_runs_beside_another_counts_as_far_as_it_lasts_longer(tmp_path: Path) -> None:
    rows = [operator("a", 0, 30, stream=1), operator("b", 5, 10, stream=2), operator("c", 10, 25, stream=2)]

    assert kernel_us(tasks(tmp_path, rows)) == {"a": 30, "b": 0, "c": 5}


def test_without_numbers_an_execution_begins_where_a_name_comes_again(tmp_path: Path) -> None:
    """Infer ID is not shown by default."""
    place = HEADER.split(",").index("Infer ID")
    rows = []
    for number in range(3):
        rows += [operator("a", 100 * number, 10), operator("b", 100 * number + 30, 10)]
    cut = [",".join(cell for at, cell in enumerate(row.split(",")) if at != place) for row in rows]

    read = tasks(tmp_path, cut, HEADER.replace("Infer ID,", ""))

    assert read.execution.tolist() == [0, 0, 1, 1, 2, 2]
    assert kernel_us(read) == {"a": 10, "b": 30}
