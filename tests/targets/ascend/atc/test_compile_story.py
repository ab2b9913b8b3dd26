import json
from pathlib import Path

import pytest

from workbench.targets.ascend.atc.compile_story import (
    CompileStory,
    Fusion,
    OmInfo,
    parse_info,
    read_fusions,
    read_story,
    story_text,
    write_story,
)

FUSIONS = (
    Fusion(name="LayerNormONNXFusionPass", group="graph", matched=9, effective=9),
    Fusion(name="GeluFusionPass", group="graph", matched=4, effective=0),
    Fusion(name="EinsumPass", group="graph", matched=1, effective=1),
)
STORY = CompileStory(
    fusions=FUSIONS,
    info={"b1.om": OmInfo(memory_size_bytes=2_000_000, weight_size_bytes=50_000_000)},
    warnings=("W11001: slow",),
    seconds={"b1.om": 1.5},
)


def test_the_story_is_read_back_and_told(tmp_path: Path) -> None:
    write_story(STORY, tmp_path)

    story = read_story(tmp_path)

    assert story == STORY
    assert [file.name for file in tmp_path.iterdir()] == ["compile.json"]
    assert story is not None
    text = story_text(story)
    assert "fusion group layer_norm: LayerNormONNXFusionPass 9x" in text
    assert "gelu" in text.splitlines()[1]
    assert "other passes with an effect: EinsumPass" in text
    assert "b1.om: 2.0 MB of work memory, 50.0 MB of weights, compiled in 1.5 s" in text
    assert "ATC warns: W11001: slow" in text


INFO = """\
ATC start working now, please wait for a moment.
============ Display Model Info start ============
Original Atc command line: atc.bin --model=a[1 B] --output=b
system   info: atc_version[8.5.0], soc_version[Ascend910B3], framework_type[5].
resource info: memory_size[2048 B], weight_size[4096 B], stream_num[1], event_num[0].
om       info: modeldef_size[100 B], weight_data_size[4096 B], tbe_kernels_size[300 B], \
cust_aicpu_kernel_store_size[0 B], task_info_size[500 B], so_store_size[0 B].
============ Display Model Info end   ============
"""


def written(file: Path, data: object) -> Path:
    file.write_text(json.dumps(data))
    return file


def test_passes_of_all_graphs_are_added_up(tmp_path: Path) -> None:
    """atc.md §4.4: counts are strings; UB passes have one more."""
    file = written(
        tmp_path / "fusion_result.json",
        {
            "session_and_graph_id_0_0": {
                "graph_fusion": {"LayerNormFusionPass": {"match_times": "5", "effect_times": "4"}},
                "ub_fusion": {
                    "TbeEltwiseFusionPass": {"match_times": "2", "effect_times": "2", "repository_hit_times": "0"}
                },
            },
            "session_and_graph_id_0_1": {
                "graph_fusion": {"LayerNormFusionPass": {"match_times": "1", "effect_times": "1"}}
            },
        },
    )

    assert read_fusions(file) == (
        Fusion(name="LayerNormFusionPass", group="graph", matched=6, effective=5),
        Fusion(name="TbeEltwiseFusionPass", group="ub", matched=2, effective=2),
    )


@pytest.mark.parametrize("data", [1, [1], {"a": 1}, {"a": {"graph_fusion": {"P": {}}}}, {"graph_fusion": {"P": 1}}])
def test_a_damaged_fusion_report_is_told(tmp_path: Path, data: object) -> None:
    with pytest.raises(ValueError, match=r"fusion results|has no counts"):
        read_fusions(written(tmp_path / "fusion_result.json", data))


def test_sizes_and_versions_are_read_from_the_block() -> None:
    """atc.md §5.6."""
    assert parse_info(INFO) == OmInfo(
        memory_size_bytes=2048,
        weight_size_bytes=4096,
        stream_num=1,
        event_num=0,
        atc_version="8.5.0",
        soc_version="Ascend910B3",
        modeldef_size_bytes=100,
        weight_data_size_bytes=4096,
        tbe_kernels_size_bytes=300,
        task_info_size_bytes=500,
    )
