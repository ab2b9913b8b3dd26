from pathlib import Path

from workbench.targets.ascend.atc.compile_story import (
    CompileStory,
    groups_with_effect,
    read_story,
    story_text,
    write_story,
)
from workbench.targets.ascend.atc.om_info import OmInfo
from workbench.targets.ascend.atc.passes import Fusion
from workbench.targets.ascend.om_set import CompiledSet

FUSIONS = (
    Fusion(name="LayerNormONNXFusionPass", group="graph", matched=9, effective=9),
    Fusion(name="GeluFusionPass", group="graph", matched=4, effective=0),
    Fusion(name="EinsumPass", group="graph", matched=1, effective=1),
)
SET = CompiledSet(
    files=(),
    kernels={},
    int8_ops=0,
    float_matmuls_left=0,
    fusions=FUSIONS,
    info={"b1.om": OmInfo(memory_size_bytes=2_000_000, weight_size_bytes=50_000_000)},
    warnings=("W11001: slow",),
    seconds={"b1.om": 1.5},
)


def test_a_group_has_an_effect_when_one_of_its_passes_changed_the_graph() -> None:
    assert groups_with_effect(FUSIONS) == {"layer_norm": {"LayerNormONNXFusionPass": 9}}


def test_the_story_is_read_back_and_told(tmp_path: Path) -> None:
    write_story(SET, tmp_path)

    story = read_story(tmp_path)

    assert story == CompileStory(fusions=FUSIONS, info=SET.info, warnings=SET.warnings, seconds=SET.seconds)
    assert [file.name for file in tmp_path.iterdir()] == ["compile.json"]
    assert story is not None
    text = story_text(story)
    assert "fusion group layer_norm: LayerNormONNXFusionPass 9x" in text
    assert "gelu" in text.splitlines()[1]
    assert "other passes with an effect: EinsumPass" in text
    assert "b1.om: 2.0 MB of work memory, 50.0 MB of weights, compiled in 1.5 s" in text
    assert "ATC warns: W11001: slow" in text


def test_files_without_a_story_have_none(tmp_path: Path) -> None:
    assert read_story(tmp_path) is None
