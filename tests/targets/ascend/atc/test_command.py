import json
from pathlib import Path

import pytest

from tests.targets.ascend.offline_files import TEXT
from tests.targets.ascend.played_atc import candidate, flags_of
from workbench.targets.ascend.atc.command import shapes_of
from workbench.targets.ascend.atc.compile_story import (
    CompileStory,
    read_fusions,
    read_story,
    sizes_in,
    story_text,
    write_story,
)
from workbench.targets.ascend.interface import Interface, Port
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.errors import CompileError

IMAGE = Interface(
    inputs=(Port(name="x", dtype="float32", shape=("batch", 3, 8, 8)),),
    outputs=(Port(name="y", dtype="float32", shape=("batch", 10)),),
)


def test_gears_are_one_file_with_a_value_for_every_size_of_every_input_that_varies() -> None:
    """atc.md §3.3: BERT with two inputs needs four values per gear, not two."""
    (shape,) = shapes_of(AscendCompile(batches=(1, 8), sequence_bins=(64, 128), shapes="gears"), TEXT)
    assert (shape.batch, shape.sequence_bin) == (None, None)
    assert shape.input_shape == "ids:-1,-1;mask:-1,-1"
    assert shape.dynamic_dims == "1,64,1,64;1,128,1,128;8,64,8,64;8,128,8,128"

    (shape,) = shapes_of(AscendCompile(batches=(4,), sequence_bins=(64, 128), shapes="gears"), TEXT)
    assert (shape.batch, shape.sequence_bin) == (4, None)
    assert (shape.input_shape, shape.dynamic_dims) == ("ids:4,-1;mask:4,-1", "64,64;128,128")
    with pytest.raises(CompileError, match=r"101 gears .*E10036"):
        shapes_of(AscendCompile(batches=tuple(range(1, 102)), shapes="gears"), IMAGE)


def test_every_setting_reaches_its_flag_and_what_repeats_atcs_default_is_left_out() -> None:
    plain = flags_of(candidate(sequence_bins=(128,)), TEXT)
    assert plain == {
        "framework": "5",
        "model": "m.onnx",
        "output": "m",
        "soc_version": "Ascend910B3",
        "input_format": "ND",
        "input_shape": "ids:1,128;mask:1,128",
        "log": "error",
        "display_model_info": "1",
        "precision_mode": "force_fp16",
    }
    asked = candidate(
        "mixed_float16",
        sequence_bins=(128,),
        op_select_implmode="high_performance",
        optypelist_for_implmode=("Gelu", "Sigmoid"),
        oo_level="O1",
        oo_constant_folding=False,
        buffer_optimize="off_optimize",
        tiling_schedule_optimize=True,
        enable_single_stream=True,
        enable_small_channel=True,
    )

    flags = flags_of(asked, TEXT)

    assert {name: value for name, value in flags.items() if name not in plain} == {
        "precision_mode_v2": "mixed_float16",
        "op_select_implmode": "high_performance",
        "optypelist_for_implmode": "Gelu,Sigmoid",
        "oo_level": "O1",
        "oo_constant_folding": "false",
        "buffer_optimize": "off_optimize",
        "tiling_schedule_optimize": "1",
        "enable_single_stream": "true",
        "enable_small_channel": "1",
    }
    assert "precision_mode" not in flags


STORY = CompileStory(
    fusions={"EinsumPass": 1, "LayerNormONNXFusionPass": 9},
    info={"b1.om": (2_000_000, 50_000_000)},
    warnings=("W11001: slow",),
    seconds={"b1.om": 1.5},
)


def test_the_story_is_read_back_and_told(tmp_path: Path) -> None:
    write_story(STORY, tmp_path / "b1.om")
    assert read_story(tmp_path) == STORY
    (tmp_path / "b1.story.json").rename(tmp_path / "compile.json")
    assert read_story(tmp_path) == STORY, "as it was kept once"

    text = story_text(STORY)

    assert "gelu" in text.splitlines()[1]
    for words in (
        "fusion group layer_norm: LayerNormONNXFusionPass 9x",
        "other passes with an effect: EinsumPass",
        "b1.om: 2.0 MB of work memory, 50.0 MB of weights, compiled in 1.5 s",
        "ATC warns: W11001: slow",
    ):
        assert words in text


INFO = """\
============ Display Model Info start ============
Original Atc command line: atc.bin --model=a[1 B] --output=b
resource info: memory_size[2048 B], weight_size[4096 B], stream_num[1], event_num[0].
om       info: modeldef_size[100 B], weight_data_size[4096 B], tbe_kernels_size[300 B], \
cust_aicpu_kernel_store_size[0 B], task_info_size[500 B], so_store_size[0 B].
============ Display Model Info end   ============
"""


def test_fusions_of_all_graphs_are_added_up_and_sizes_read_from_their_block(tmp_path: Path) -> None:
    """atc.md §4.4: counts are strings; UB passes have one more. §5.6: the block."""
    norm, eltwise = {"match_times": "5", "effect_times": "4"}, {"effect_times": "2", "repository_hit_times": "0"}
    both = {"graph_fusion": {"LayerNormFusionPass": norm}, "ub_fusion": {"TbeEltwiseFusionPass": eltwise}}
    again = {"graph_fusion": {"LayerNormFusionPass": {"match_times": "1", "effect_times": "1"}}}
    file = tmp_path / "fusion_result.json"
    file.write_text(json.dumps({"session_and_graph_id_0_0": both, "session_and_graph_id_0_1": again}))

    assert read_fusions(file) == {"LayerNormFusionPass": 5, "TbeEltwiseFusionPass": 2}
    for damaged in (1, [1], {"a": 1}, {"a": {"graph_fusion": {"P": {}}}}, {"graph_fusion": {"P": 1}}):
        file.write_text(json.dumps(damaged))
        with pytest.raises(ValueError, match="no counts of fusion passes"):
            read_fusions(file)
    assert sizes_in(INFO) == (2048, 4096)
