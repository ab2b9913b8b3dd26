"""Suggestions become candidates: of the space where it has them, else with what it lacks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ascend_workspace import SPACE
from workbench.quantization.amct.cfg import AmctConfig, write_cfg
from workbench.space.reader import read_space
from workbench.space.space import SearchSpace, assignment_of, build, complete
from workbench.study.profile_tries import Try, tries
from workbench.values.candidate import Candidate, Quantization, candidate_from_json
from workbench.values.device_profile import Suggestion
from workbench.values.dimension import Scalar


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> SearchSpace:
    file = tmp_path_factory.mktemp("space") / "tiny.yaml"
    file.write_text(SPACE, encoding="utf-8")
    return read_space(file)


def tried(space: SearchSpace, candidate: Candidate, folder: Path, *changes: dict[str, Scalar]) -> tuple[Try, ...]:
    suggestions = [Suggestion(finding="f", changes=change, at_most=0.5) for change in changes]
    return tries(suggestions, candidate, space, Path("e.yaml"), folder)


def baseline(space: SearchSpace, **chosen: Scalar) -> Candidate:
    return build(space, complete(space, chosen))


def test_what_the_space_offers_is_a_candidate_of_it(space: SearchSpace, tmp_path: Path) -> None:
    start = baseline(space, **{"compile.fusions.gelu": "off"})

    batch, fused = tried(space, start, tmp_path, {"serving.batch": 4}, {"compile.fusions.gelu": "on"})

    assert batch.candidate.serving.batch == 4
    assert batch.missing == {}
    assert assignment_of(space, batch.candidate) is not None
    assert batch.command == f"workbench evaluate e.yaml --candidate {batch.file}"
    assert candidate_from_json(json.loads(batch.file.read_text(encoding="utf-8"))) == batch.candidate
    assert fused.candidate == baseline(space)


def test_what_the_space_lacks_is_named(space: SearchSpace, tmp_path: Path) -> None:
    (one,) = tried(space, baseline(space), tmp_path, {"serving.batch": 2, "compile.enable_single_stream": True})

    assert one.candidate.serving.batch == 2
    assert one.candidate.parameters()["compile.enable_single_stream"] is True
    assert one.missing == {"serving.batch": 2, "compile.enable_single_stream": True}


def test_what_cannot_be_is_refused_with_its_reason(space: SearchSpace, tmp_path: Path) -> None:
    (one,) = tried(space, baseline(space), tmp_path, {"serving.batch": 16, "compile.batches": "8"})

    assert one.candidate is None
    assert "larger than every compiled batch" in one.refused


def test_a_suggestion_that_changes_nothing_here_is_left_out_and_one_without_a_setting_is_told(
    space: SearchSpace, tmp_path: Path
) -> None:
    found = tried(space, baseline(space), tmp_path, {"serving.batch": 1}, {})

    assert [(one.candidate, one.refused) for one in found] == [(None, "")]


def test_a_candidate_that_follows_a_configuration_keeps_it(space: SearchSpace, tmp_path: Path) -> None:
    text = write_cfg(AmctConfig(batch_num=2, skip_layers=("classifier",)))
    own = replace(baseline(space), quantization=Quantization(scheme="cfg", cfg=text))

    (one,) = tried(space, own, tmp_path, {"serving.batch": 4})

    assert one.candidate.quantization == own.quantization
    assert one.missing["quantization.scheme"] == "cfg"
    assert "serving.batch" not in one.missing
    assert one.candidate.serving.batch == 4
