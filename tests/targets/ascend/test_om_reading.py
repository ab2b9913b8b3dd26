"""What ATC leaves beside an OM or prints about it: fusion_result.json, the JSON of --mode=1, the block of --mode=6."""

import json
from pathlib import Path

import pytest

from workbench.targets.ascend.atc.om_info import OmInfo, parse_info
from workbench.targets.ascend.atc.om_json import count_kernels
from workbench.targets.ascend.atc.passes import Fusion, read_fusions

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


def test_kernels_are_counted_and_products_sorted_by_their_inputs(tmp_path: Path) -> None:
    def op(kind: str, *types: str) -> dict[str, object]:
        return {"name": kind, "type": kind, "input_desc": [{"dtype": f"DT_{name}"} for name in types]}

    file = written(
        tmp_path / "om.json",
        {
            "graph": [
                {
                    "op": [
                        op("Data"),
                        op("MatMulV2", "INT8", "INT8", "INT32"),
                        op("MatMulV2", "FLOAT16", "FLOAT16"),
                        op("BatchMatMulV3", "INT8", "INT8"),
                        op("WeightQuantBatchMatmulV2", "FLOAT16", "INT8"),
                        op("Conv2D", "INT8", "INT8"),
                        op("QuantBatchMatmulV3", "INT8", "INT8"),
                        op("ConcatV2D", "INT8", "INT8"),
                        op("AscendQuant", "FLOAT16"),
                        op("NetOutput"),
                    ]
                }
            ]
        },
    )

    counts = count_kernels(file)

    assert (counts.int8_ops, counts.float_matmuls_left) == (4, 2)
    assert counts.kernels["MatMulV2"] == 2
    assert "Data" not in counts.kernels
    assert "NetOutput" not in counts.kernels
    assert sum(counts.kernels.values()) == 8


def test_gears_repeat_each_other_and_count_once(tmp_path: Path) -> None:
    def product(gear: int) -> dict[str, str]:
        return {"name": f"query_ascend_mbatch_batch_{gear}", "type": "MatMulV2"}

    file = written(
        tmp_path / "om.json",
        {"graph": [{"op": [{"name": "choice", "type": "Case"}]}, *({"op": [product(gear)]} for gear in range(11))]},
    )

    counts = count_kernels(file)

    assert (dict(counts.kernels), counts.float_matmuls_left) == ({"MatMulV2": 1}, 1)


@pytest.mark.parametrize("data", [[], {}, {"graph": 1}, {"graph": []}, {"graph": [{"op": [{"name": "x"}]}]}])
def test_json_of_another_form_is_told(tmp_path: Path, data: object) -> None:
    with pytest.raises(ValueError, match=r"graph|operator"):
        count_kernels(written(tmp_path / "om.json", data))


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


def test_without_the_block_nothing_is_told() -> None:
    assert parse_info("ATC run success, welcome to the next use.") is None
    assert parse_info("= Display Model Info start =\nmemory_size[x B]\n") is None
