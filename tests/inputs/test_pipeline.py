"""A pipeline's file: stages in an order in which each comes behind those that it takes from, or one clear sentence."""

from pathlib import Path

import pytest

from tests.tiny_pipeline import CODE, PIPELINE, write_pipeline
from workbench.inputs.pipeline import read_pipeline
from workbench.values.errors import ConfigError


def test_stages_come_in_an_order_in_which_each_has_what_it_takes(tmp_path: Path) -> None:
    found = read_pipeline(write_pipeline(tmp_path))

    assert [stage.name for stage in found.stages] == ["find", "embed", "decide"]
    assert [stage.wiring.takes for stage in found.stages] == [("request",), ("request", "find"), ("embed",)]
    assert found.answer is not None
    assert found.answer[1] == ("request", "find", "decide")
    assert found.identity == read_pipeline(write_pipeline(tmp_path)).identity


def test_its_identity_follows_the_code_and_the_wiring(tmp_path: Path) -> None:
    before = read_pipeline(write_pipeline(tmp_path)).identity

    other_code = read_pipeline(write_pipeline(tmp_path, code=CODE.replace("score > 0", "score > 1"))).identity
    other_edge = read_pipeline(write_pipeline(tmp_path, pipeline=PIPELINE.replace("embed.y", "embed.z"))).identity

    assert len({before, other_code, other_edge}) == 3


def test_what_is_wrong_with_it_is_said_in_one_sentence_with_its_place(tmp_path: Path) -> None:
    circle = CODE.replace("def flat(request):", "def flat(request, decide):")
    cases = (
        ({"code": circle}, "stages wait for each other: decide → embed → find → decide"),
        ({"pipeline": PIPELINE.replace("embed.y", "embd.y")}, "there is no stage 'embd'.*embed"),
        ({"pipeline": PIPELINE.replace("embed.y", "embed")}, "'embed' is not STAGE.TENSOR"),
        ({"pipeline": PIPELINE.replace('glue: "code.py:flat"', 'glue: "code.py:flatt"')}, "no function 'flatt'.*flat"),
        ({"code": CODE.replace("def chosen(request, find)", "def chosen(request, fnd)")}, "parameter 'fnd'.*find"),
        ({"code": CODE.replace("def flat(request)", "def flat(*all)")}, "does not say what it takes"),
        (
            {"pipeline": PIPELINE.replace('glue: "code.py:flat"', 'glue: "code.py:flat", inputs: {x: request.rows}')},
            "has both glue and inputs",
        ),
        ({"pipeline": PIPELINE.replace("inputs: {x: embed.y}, ", "")}, "has neither inputs nor glue"),
        ({"pipeline": PIPELINE.replace("  find:", "  request:")}, "'request' cannot name a stage"),
        ({"pipeline": PIPELINE.replace("  find:", "  a-b:")}, "'a-b' cannot name a stage"),
        ({"pipeline": PIPELINE.replace("concurrency: 2", "rate: 5")}, "so many clients"),
        ({"pipeline": PIPELINE.replace("accuracy_loss_pp", "accuracy_loss")}, "a share of 0..1.*accuracy_loss_pp"),
        ({"pipeline": PIPELINE.replace("name: tiny", "name: a/b")}, "cannot name a folder"),
    )
    for changed, said in cases:
        with pytest.raises(ConfigError, match=said):
            read_pipeline(write_pipeline(tmp_path, **changed))
