from pathlib import Path

import numpy as np
import pytest

from tests.commands.init.making import refused
from workbench.commands.init.data import assign_splits
from workbench.values.errors import ConfigError


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("train.csv", "dev.csv"), ("train.csv", "dev.csv")),
        (("dev.csv", "train.csv"), ("train.csv", "dev.csv")),
        (("test.csv", "train.csv"), ("train.csv", "test.csv")),
        (("test.csv", "valid.csv", "calib.csv"), ("calib.csv", "valid.csv", "test.csv")),
        (("holdout.csv", "calibration.csv", "test.csv"), ("calibration.csv", "test.csv", "holdout.csv")),
        (("a.csv", "b.csv"), ("a.csv", "b.csv")),
        (("c.csv", "a.csv", "b.csv"), ("c.csv", "a.csv", "b.csv")),
        (("rows.csv", "calib.csv"), ("calib.csv", "rows.csv")),
        (("test.csv", "dev.csv", "rows.csv"), ("rows.csv", "dev.csv", "test.csv")),
        (("test.csv", "rows.csv", "train.csv"), ("train.csv", "rows.csv", "test.csv")),
        (("test.csv", "rows.csv"), ("rows.csv", "test.csv")),
        (("my-Dev1.csv", "latest.csv"), ("latest.csv", "my-Dev1.csv")),
    ],
)
def test_files_are_told_apart_by_name_then_by_order(
    tmp_path: Path, names: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).touch()

    found = assign_splits([tmp_path / name for name in names])

    assert tuple(path.name for path in found.values()) == expected
    assert tuple(found) == ("calibration", "validation", "holdout")[: len(expected)]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("dev.csv",), "dev.csv alone cannot both calibrate and judge"),
        (("a.csv", "a.csv"), "stands twice"),
        (("train.csv", "train_2.csv"), "both look like the calibration file"),
        (("a.csv", "b.csv", "c.csv", "d.csv"), "4 files"),
        (("a.txt", "b.csv"), ".txt is of no known kind"),
        (("train.csv", "holdout.csv"), "no validation file among train.csv, holdout.csv"),
        (("dev.csv", "test.csv"), "no calibration file among dev.csv, test.csv"),
        (("test_a.csv", "test_b.csv"), "no calibration file"),
    ],
)
def test_files_that_cannot_be_split_are_refused(tmp_path: Path, names: tuple[str, ...], says: str) -> None:
    for name in names:
        (tmp_path / name).touch()

    with pytest.raises(ConfigError) as caught:
        assign_splits([tmp_path / name for name in names])

    assert says in str(caught.value)


def test_kinds_of_files_cannot_be_mixed(folder: Path) -> None:
    np.savez(folder / "valid.npz", x=np.zeros((4, 4), np.float32))

    assert "cannot be mixed" in refused(folder, "train.csv", "valid.npz")
