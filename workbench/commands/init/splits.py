"""Which file is for what: calibration, validation and holdout, told apart by the files' names and order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from workbench.values.documents.input_files import check_file
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split

KINDS = {".csv": "text", ".jsonl": "text", ".npz": "arrays"}
"""What files hold, by their suffix."""

_WORDS_OF_SPLITS: Mapping[Split, tuple[str, ...]] = {
    "holdout": ("hold",),
    "calibration": ("calib", "train"),
    "validation": ("val", "dev", "eval"),
}
"""Beginnings of the words in a file's name."""


def assign_splits(data: Sequence[Path]) -> dict[Split, Path]:
    """Which file is which split, by the words in their names, else by their order.

    A test file is the holdout where another file can be the validation, else the validation; it is never the
    calibration. Without a holdout the manifest divides the validation.

    Raises:
        ConfigError: a file is missing or of an unknown kind, two claim one split, or no two splits can be filled.
    """
    for path in data:
        check_file(path, key="--data")
        if path.suffix not in KINDS:
            hint = f"Write {path}:load for a loader." if path.suffix == ".py" else "Use CSV, JSONL or NPZ."
            raise ConfigError(f"{path.suffix or 'no suffix'} is of no known kind.", file=path, hint=hint)
    if len({path.resolve() for path in data}) != len(data):
        raise ConfigError(
            "one file stands twice.", key="--data", hint="Scales chosen on the rows that judge them look too good."
        )
    if len(data) == 1:
        raise ConfigError(
            f"{data[0].name} alone cannot both calibrate and judge: scales look too good on their own rows.",
            key="--data",
            hint="Give a second file, such as a part of the training data: --data train.csv --data dev.csv. "
            "The validation file is divided into validation and holdout.",
        )
    if not 2 <= len(data) <= 3:
        raise ConfigError(
            f"{len(data)} files.", key="--data", hint="Give a calibration and a validation file, and perhaps a holdout."
        )
    found: dict[Split, Path] = {}

    def claim(split: Split, path: Path) -> None:
        if split in found:
            raise ConfigError(
                f"{found[split].name} and {path.name} both look like the {split} file.",
                key="--data",
                hint="Their names must tell calibration, validation and holdout apart.",
            )
        found[split] = path

    unnamed: list[Path] = []
    tests: list[Path] = []
    for path in data:
        split = next((s for s, beginnings in _WORDS_OF_SPLITS.items() if _has_word(path, beginnings)), None)
        if split is not None:
            claim(split, path)
        else:
            (tests if _has_word(path, ("test",)) else unnamed).append(path)
    for path in tests:  # never the calibration: what it is, the search should not see, or only judge by
        spare = "validation" in found or len(data) == 3
        claim("holdout" if spare and "holdout" not in found else "validation", path)
    free = [split for split in get_args(Split) if split not in found]
    found.update(zip(free, unnamed, strict=False))
    for split in ("calibration", "validation"):
        if split not in found:
            raise ConfigError(
                f"no {split} file among {', '.join(path.name for path in data)}.",
                key="--data",
                hint=f"Put {'calib or train' if split == 'calibration' else 'valid or dev'} into its name.",
            )
    return {split: found[split] for split in get_args(Split) if split in found}


def _has_word(path: Path, beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in re.split("[^a-z]+", path.stem.lower()))
