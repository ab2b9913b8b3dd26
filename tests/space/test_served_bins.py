"""Bins by word become numbers once there is a dataset. As a choice of the service: what a space loses, what its service
gains, and whose rules follow."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.spaces import BINS, LENGTHS, space_of
from workbench.space.served_bins import choices_of, finest, to_service, with_lengths
from workbench.space.space import Forbidden, SearchSpace, build, combinations, size
from workbench.space.writer import space_yaml
from workbench.values.candidate import Candidate, Serving
from workbench.values.errors import ConfigError

TOKENS = np.array([10] * 50 + [40] * 30 + [120] * 20)
SPACE = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic]}
  quantization.weight_granularity: {when: {quantization.scheme: [dynamic]}, choices: [channel]}
  serving.intra_op_threads: {choices: [2, 1]}
  serving.sequence_bins: {choices: ["optimal 1", "16 128", "optimal 3"]}
service: {max_batch_size: [1, 4], workers: [1]}
forbid:
  - {serving.sequence_bins: ["16 128"], serving.intra_op_threads: [1], reason: not here}
presets:
  - {name: float}
  - {name: float-bins, serving.sequence_bins: "optimal 3"}
  - {name: dynamic-bins, quantization.scheme: dynamic, serving.sequence_bins: "optimal 3"}
"""
OWN = (64, 128)
OPTIMAL = (16, 40, 128)


def served(folder: Path, text: str = SPACE) -> SearchSpace:
    return to_service(with_lengths(space_of(folder, text), lambda: TOKENS, 128), OWN)


def test_the_sampler_never_sees_bins_and_presets_that_differ_in_them_are_one(tmp_path: Path) -> None:
    space = served(tmp_path)

    assert [p.name for p in space.parameters] == [
        "quantization.scheme",
        "quantization.weight_granularity",
        "serving.intra_op_threads",
    ]
    assert space.forbid == ()
    assert [p.name for p in space.presets] == ["float", "dynamic-bins"]
    assert len({build(space, a).id for a in combinations(space)}) == 4
    assert all(build(space, a).serving.sequence_bins is None for a in combinations(space))
    assert finest(space, TOKENS) == OPTIMAL
    assert space.digest != with_lengths(space_of(tmp_path, SPACE), lambda: TOKENS, 128).digest


def test_a_service_chooses_among_the_bins_that_the_rules_leave_its_candidate(tmp_path: Path) -> None:
    space = served(tmp_path)
    two, one = (Candidate(target="onnxruntime", serving=Serving(intra_op_threads=n)) for n in (2, 1))

    choices, fewer = choices_of(space, two), choices_of(space, one)
    assert choices.sequence_bins == ((128,), (16, 128), OPTIMAL)
    assert fewer.sequence_bins == ((128,), OPTIMAL)
    assert len(choices.settings()) == 6
    assert choices.untuned.sequence_bins == (128,)
    assert str(choices.settings()[-1]) == "batch <= 4, 0 ms, 1 worker, bins 16 40 128"


def test_bins_of_some_candidates_leave_the_others_those_of_the_dataset(tmp_path: Path) -> None:
    when = SPACE.replace("bins: {choices", "bins: {when: {serving.intra_op_threads: [2]}, choices").split("forbid:")[0]
    space = served(tmp_path, when)

    choices = choices_of(space, Candidate(target="onnxruntime", serving=Serving(intra_op_threads=1)))
    assert choices.sequence_bins == (OWN,)


def test_what_runs_today_may_name_its_bins_and_has_the_first_otherwise(tmp_path: Path) -> None:
    today = "workers: [1], today: {max_batch_size: 4, batch_timeout_ms: 0, workers: 1BINS}"
    for said, bins in (("", (128,)), (', sequence_bins: "optimal 3"', OPTIMAL)):
        space = served(tmp_path, SPACE.replace("workers: [1]", today.replace("BINS", said)))
        assert space.service.untuned.sequence_bins == bins
    with pytest.raises(ConfigError, match=re.escape("service.today.sequence_bins: '8 128' is not among optimal 1, 16")):
        served(tmp_path, SPACE.replace("workers: [1]", today.replace("BINS", ', sequence_bins: "8 128"')))


def test_a_parameter_that_depends_on_bins_is_refused_with_a_service(tmp_path: Path) -> None:
    tied = '  serving.batch: {when: {serving.sequence_bins: ["optimal 1"]}, choices: [1]}\nservice:'
    text = SPACE.split("forbid:")[0].replace("service:", tied)

    with pytest.raises(ConfigError, match=r"parameters.serving.batch.when: depends on serving.sequence_bins"):
        served(tmp_path, text)


def test_without_a_service_and_where_lengths_are_compiled_nothing_moves(tmp_path: Path) -> None:
    alone = with_lengths(space_of(tmp_path, re.sub(r"service:.*\n", "", SPACE)), lambda: TOKENS, 128)
    assert to_service(alone, OWN) is alone
    both = """
version: 1
target: [onnxruntime, ascend910b3]
parameters:
  quantization.scheme: {choices: [none]}
  precision.mode: {when: {target: [ascend910b3]}, choices: [force_fp16]}
  serving.sequence_bins: {when: {target: [onnxruntime]}, choices: ["32 128", "optimal 1"]}
  compile.sequence_bins: {when: {target: [ascend910b3]}, choices: ["64 128", "128"]}
service: {max_batch_size: [1, 4], workers: [1]}
"""
    space = served(tmp_path, both)
    offered = {}
    for assignment in combinations(space):
        choices = choices_of(space, candidate := build(space, assignment))
        offered[candidate.sequence_bins] = choices.sequence_bins
    assert offered == {None: ((32, 128), (128,)), (64, 128): (), (128,): ()}


def test_the_file_of_a_space_can_be_written_again(tmp_path: Path) -> None:
    space = served(tmp_path)
    file = space.served_bins.file

    again = space_of(tmp_path, space_yaml(file))
    assert again.digest == file.digest
    assert to_service(again, OWN).digest == space.digest


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
