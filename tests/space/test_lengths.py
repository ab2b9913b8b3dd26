"""Bins by word become numbers, once there is a dataset."""

import re
from pathlib import Path

import pytest

from tests.spaces import BINS, LENGTHS, space_of
from workbench.space.served_bins import with_lengths
from workbench.space.space import Forbidden, build, combinations, size
from workbench.values.errors import ConfigError


def test_words_for_bins_become_numbers_everywhere_once_the_lengths_are_known(tmp_path: Path) -> None:
    space = with_lengths(space_of(tmp_path, BINS), lambda: LENGTHS, 256)
    optimal = "40 104 256"

    assert space.parameters[0].choices == ("256", optimal, "32 64 256"), "256 is what optimal 1 comes to"
    assert space.parameters[1].when == {"serving.sequence_bins": (optimal, "256")}
    assert space.forbid[0].values["serving.sequence_bins"] == (optimal,)
    assert build(space, space.presets[0].assignment).serving.sequence_bins == (40, 104, 256)
    with pytest.raises(Forbidden, match="not enough texts"):
        build(space, {"serving.sequence_bins": optimal, "serving.batch": 4})
    assert size(space).exact


def test_bins_that_do_not_fit_the_data_are_refused(tmp_path: Path) -> None:
    for max_length, message in (
        (None, "serving.sequence_bins: the dataset's samples are not texts, which have lengths"),
        (300, "no bin of '256' holds a text of the dataset's max_length 300. Add 300"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            with_lengths(space_of(tmp_path, BINS), lambda: LENGTHS, max_length)


def test_bins_on_ascend_are_multiples_of_sixteen_and_compiled_once(tmp_path: Path) -> None:
    text = """
version: 1
target: ascend910b3
service: {max_batch_size: [1, 8], batch_timeout_ms: [2], workers: [1]}
parameters:
  quantization.scheme: {choices: [none]}
  precision.mode: {choices: [force_fp16]}
  compile.sequence_bins: {choices: ["optimal 1", "optimal 3"]}
  serving.batch: {choices: [1, 4]}
"""
    space = with_lengths(space_of(tmp_path, text), lambda: LENGTHS, 256)
    found = [build(space, a) for a in combinations(space)]

    assert {c.sequence_bins for c in found} == {(256,), (48, 112, 256)}
    assert {c.compile.batches for c in found if c.serving.batch == 4} == {(1, 4, 8)}  # type: ignore[union-attr]  # Ascend
