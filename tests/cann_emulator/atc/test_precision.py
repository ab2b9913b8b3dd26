"""What precision modes and their files make of an encoder's kernels (atc.md §3.1, §3.2)."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cann_emulator.atc.compiling import BATCH, LENGTH, STATIC, compiled, difference, encoder
from tests.targets.encoder import ids
from workbench.cann_emulator.atc.precision import CUBE_TYPES
from workbench.cann_emulator.om import Kernel, OfflineModel

CUBES = {kind for kind in CUBE_TYPES if "MatMul" in kind}


def dtypes(model: OfflineModel, chosen: Callable[[Kernel], bool]) -> set[str]:
    return {kernel.dtype for kernel in model.gears[0].kernels if chosen(kernel)}


def is_cube(kernel: Kernel) -> bool:
    return kernel.op_type in CUBES


def is_vector(kernel: Kernel) -> bool:
    return kernel.core == "vector" and kernel.op_type != "Cast"


def of_type(kind: str) -> Callable[[Kernel], bool]:
    return lambda kernel: kernel.op_type == kind


def test_modes_decide_by_kind_of_operator(tmp_path: Path) -> None:
    path, half, single, both = encoder(tmp_path), {"float16"}, {"float32"}, {"float16", "float32"}
    for flag, modes in {
        "precision_mode": {
            "force_fp16": (half, half),
            "force_fp32": (half, single),
            "cube_fp16in_fp32out": (half, single),
            "allow_fp32_to_fp16": (half, single),
            "must_keep_origin_dtype": (single, single),
            "allow_mix_precision": (half, both),
            "allow_mix_precision_bf16": ({"bfloat16"}, {"bfloat16", "float32"}),
            "allow_fp32_to_bf16": (single, single),
        },
        "precision_mode_v2": {"fp16": (half, half), "origin": (single, single), "mixed_float16": (half, both)},
    }.items():
        for mode, expected in modes.items():
            model = compiled(path, input_shape=STATIC, **{flag: mode})
            assert (dtypes(model, is_cube), dtypes(model, is_vector)) == expected, mode
    plain = compiled(path, input_shape=STATIC)
    assert dtypes(plain, is_cube) == dtypes(plain, is_vector) == half


def test_accuracy_follows_the_documented_order(tmp_path: Path) -> None:
    """force_fp16 is the least precise, keeping the model's types gives its values (atc.md §3.1)."""
    path = encoder(tmp_path)
    feeds = ids(BATCH, LENGTH)
    errors = [
        difference(compiled(path, input_shape=STATIC, precision_mode=mode), path, feeds)
        for mode in ("must_keep_origin_dtype", "allow_fp32_to_fp16", "allow_mix_precision_bf16")
    ]
    assert errors == sorted(errors)
    assert errors[0] < 1e-5


def test_black_types_stay_in_float_and_grey_ones_follow(tmp_path: Path) -> None:
    path = encoder(tmp_path)
    plain = compiled(path, input_shape=STATIC, precision_mode="allow_mix_precision")
    assert dtypes(plain, of_type("ReduceMeanD")) == {"float32"}  # black
    assert dtypes(plain, of_type("GatherV2")) == {"float32"}  # grey, nothing before it
    assert dtypes(plain, of_type("SoftmaxV2")) == {"float16"}  # grey, behind a product
    lists = {"black-list": {"to-add": ["SoftmaxV2"], "to-remove": ["ReduceMeanD"]}}
    (tmp_path / "mix.json").write_text(json.dumps(lists))
    changed = compiled(
        path, input_shape=STATIC, precision_mode="allow_mix_precision", modify_mixlist=str(tmp_path / "mix.json")
    )
    assert dtypes(changed, of_type("SoftmaxV2")) == {"float32"}
    assert dtypes(changed, of_type("ReduceMeanD")) == {"float16"}


def test_keep_dtype_by_type_and_by_the_names_of_the_file(tmp_path: Path) -> None:
    for line, kind in (
        ("pool", "ReduceMeanD"),
        ("OpType::ReduceMean", "ReduceMeanD"),
        ("OpType::LayerNorm", "AddLayerNorm"),
    ):
        (tmp_path / "keep.txt").write_text(f"{line}\nnobody_has_this_name\n")
        model = compiled(encoder(tmp_path), input_shape=STATIC, keep_dtype=str(tmp_path / "keep.txt"))
        assert dtypes(model, of_type(kind)) == {"float32"}
        assert dtypes(model, is_cube) == {"float16"}


def test_customize_dtypes_beats_keep_dtype_and_the_mode(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("OpType::SoftmaxV2\n")
    (tmp_path / "custom.txt").write_text("softmax::InputDtype:float16,OutputDtype:float16\n")
    model = compiled(
        encoder(tmp_path),
        input_shape=STATIC,
        precision_mode="must_keep_origin_dtype",
        keep_dtype=str(tmp_path / "keep.txt"),
        customize_dtypes=str(tmp_path / "custom.txt"),
    )
    assert dtypes(model, of_type("SoftmaxV2")) == {"float16"}


def test_implementation_modes_reach_the_kernels_of_their_types(tmp_path: Path) -> None:
    path = encoder(tmp_path)

    def modes(**flags: str) -> dict[str, str]:
        model = compiled(path, input_shape=STATIC, **flags)
        return {k.op_type: k.implementation for k in model.gears[0].kernels if k.implementation}

    assert modes() == {}
    assert modes(op_select_implmode="high_precision", optypelist_for_implmode="SoftmaxV2,AddLayerNorm") == {
        "SoftmaxV2": "high_precision",
        "AddLayerNorm": "high_precision",
    }
    (tmp_path / "op.ini").write_text("[ByOpType]\nSoftmaxV2=high_performance\n[ByNodeName]\npool=high_precision\nx=?\n")
    assert modes(op_precision_mode=str(tmp_path / "op.ini"), op_select_implmode="high_precision") == {
        "SoftmaxV2": "high_performance",
        "ReduceMeanD": "high_precision",
    }
    assert "GatherV2" in modes(op_select_implmode="high_precision_for_all")
