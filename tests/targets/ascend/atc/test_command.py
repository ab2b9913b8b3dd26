from pathlib import Path

import pytest

from tests.targets.ascend.offline_files import BERT
from workbench.targets.ascend.atc.command import compile_flags, shapes_of
from workbench.targets.ascend.interface import Interface, Port
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import CompileError, ConfigError

IMAGE = Interface(
    inputs=(Port(name="x", dtype="float32", shape=("batch", 3, 8, 8)),),
    outputs=(Port(name="y", dtype="float32", shape=("batch", 10)),),
)


def candidate(settings: AscendCompile, mode: str = "force_fp16") -> Candidate:
    return Candidate(target="ascend910b3", precision=Precision(mode=mode), compile=settings)


def flags_of(chosen: Candidate, interface: Interface = BERT, chip: str = "Ascend910B3") -> dict[str, str]:
    assert isinstance(chosen.compile, AscendCompile)
    return compile_flags(
        chosen,
        shapes_of(chosen.compile, interface)[0],
        interface,
        soc_version=chip,
        model=Path("/w/m.onnx"),
        output=Path("/w/o"),
        files={},
    )


def test_static_means_one_file_for_each_batch_and_bin() -> None:
    shapes = shapes_of(AscendCompile(batches=(1, 8), sequence_bins=(64, 128)), BERT)

    assert [(s.name, s.batch, s.sequence_bin, s.input_shape) for s in shapes] == [
        ("b1_s64", 1, 64, "ids:1,64;mask:1,64"),
        ("b1_s128", 1, 128, "ids:1,128;mask:1,128"),
        ("b8_s64", 8, 64, "ids:8,64;mask:8,64"),
        ("b8_s128", 8, 128, "ids:8,128;mask:8,128"),
    ]


def test_gears_are_one_file_with_a_value_for_every_free_size_of_every_input() -> None:
    """atc.md §3.3: BERT with two inputs needs four values per gear, not two."""
    (shape,) = shapes_of(AscendCompile(batches=(1, 8), sequence_bins=(64, 128), shapes="gears"), BERT)

    assert (shape.batch, shape.sequence_bin) == (None, None)
    assert shape.input_shape == "ids:-1,-1;mask:-1,-1"
    assert shape.dynamic_dims == "1,64,1,64;1,128,1,128;8,64,8,64;8,128,8,128"


def test_a_size_that_does_not_vary_is_no_gear() -> None:
    (shape,) = shapes_of(AscendCompile(batches=(4,), sequence_bins=(64, 128), shapes="gears"), BERT)

    assert (shape.batch, shape.sequence_bin) == (4, None)
    assert (shape.input_shape, shape.dynamic_dims) == ("ids:4,-1;mask:4,-1", "64,64;128,128")


def test_what_repeats_atcs_default_is_left_out() -> None:
    assert flags_of(candidate(AscendCompile(sequence_bins=(128,)))) == {
        "framework": "5",
        "model": "/w/m.onnx",
        "output": "/w/o",
        "soc_version": "Ascend910B3",
        "input_format": "ND",
        "input_shape": "ids:1,128;mask:1,128",
        "log": "error",
        "display_model_info": "1",
        "precision_mode": "force_fp16",
    }


def test_every_setting_reaches_its_flag() -> None:
    settings = AscendCompile(
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

    flags = flags_of(candidate(settings, "mixed_float16"))

    assert {name: flags[name] for name in list(flags)[8:]} == {
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


def test_more_gears_than_a_file_may_have_are_refused() -> None:
    with pytest.raises(CompileError, match=r"101 gears .*E10036"):
        shapes_of(AscendCompile(batches=tuple(range(1, 102)), shapes="gears"), IMAGE)


@pytest.mark.parametrize("chip", ["Ascend910B", "Ascend310P3"])
def test_a_chip_of_another_family_is_refused(chip: str) -> None:
    with pytest.raises(ConfigError, match=f"--soc_version={chip}.* is no chip of the 910B family"):
        flags_of(candidate(AscendCompile()), IMAGE, chip)
