"""atc.md §3.3 and §13a, and option_utils.cc:262-830 of ge v8.5.0 that they cite."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.gears import read_requests
from workbench.cann_emulator.atc.shapes import as_range, check_shape_flags, parse_ranges, parse_shapes


def codes(call: object, *arguments: object, **named: object) -> list[str]:
    assert callable(call)
    with pytest.raises(AtcFailure) as caught:
        call(*arguments, **named)
    return [record.code for record in caught.value.records]


def test_a_static_shape_is_read() -> None:
    for text, *shapes in (
        ("a:1,128;b:1,128", ("a", (1, 128)), ("b", (1, 128))),
        (" input : 1 , 3,500,500", ("input", (1, 3, 500, 500))),
        ("scope:0:1,2", ("scope:0", (1, 2))),
        ("scalar:;b:4", ("scalar", ()), ("b", (4,))),
        ("a:1;a:2", ("a", (1,)), ("a", (2,))),
        ("输入:1,2", ("输入", (1, 2))),
        ("a:0001", ("a", (1,))),
    ):
        assert parse_shapes(text, gears=False) == tuple(shapes)


def test_a_static_shape_that_is_none_has_the_documented_code() -> None:
    """Shapes by position (`1,128;1,128`) are among them; it is read behind the engines' start, with an inner error."""
    form = ("a:1,2.5", "a:1,2x", "a:1 2", "a:+1", "a:1²", "a", "1,128;1,128", "1,128", "a:1;", "a:1;2", "a:1;;b:2")
    for code, texts in {
        "E10002": form,
        "E10014": ("a:x", "a:²", "a:1,,2", "a:1,", "a: "),
        "E10011": ("a:0,1", "a:-2"),
        "E10013": (f"a:{2**63}", f"a:{'9' * 5000}"),
    }.items():
        for text in texts:
            assert codes(parse_shapes, text, gears=False) == [code], text
            assert codes(read_requests, {"input_shape": text}) == [code, "E19999"], text
            check_shape_flags({"input_shape": text})


def test_a_shape_range_is_read_and_a_bad_one_is_e10048() -> None:
    assert parse_ranges("image:[1,3,100~1080,100~1920]") == {"image": (1, 3, (100, 1080), (100, 1920))}
    several = {"tgt": (-1, -1), "cache_0": (-1, -1, 512), "cache_1": (-1,)}
    assert parse_ranges("tgt:[-1,-1];cache_0:[-1,-1,512]; cache_1:[-1]") == several
    brackets = ("a:1~8", "a:[1~8", "a:[[1]]", "a:", "a:[1.5]", "a:[1~2~3]", "a:[1];b", "a:[1,x]", "a:[1];", "a:[]", "[")
    for text in (*brackets, "[1~20,3],[1~2,3]"):
        assert codes(parse_ranges, text) == ["E10048"], text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"input_shape": "a:1~2", "dynamic_batch_size": "1,2"}, ["E10040"]),
        ({"input_shape": "a:1~2", "dynamic_batch_size": "1,2", "dynamic_dims": "1;2"}, ["E10040"]),
        ({"input_shape": "a:-1", "dynamic_batch_size": "1,2", "dynamic_dims": "1;2"}, ["E10009"]),
        ({"input_shape": "a:-1", "dynamic_batch_size": "1,2", "dynamic_image_size": "1,2;3,4"}, ["E10009"]),
        ({"input_shape_range": "a:[1~2]", "dynamic_dims": "1;2"}, ["E10009"]),
        ({"input_shape_range": "a:[1~2]", "dynamic_dims": "1;2", "input_hint_shape": "0:[1]"}, ["E10009"]),
        ({"dynamic_batch_size": "1,2"}, ["E10004"]),
        ({"dynamic_dims": "1;2"}, ["E10004"]),
        ({"input_shape": "a:-1;b:", "dynamic_batch_size": "1,2"}, ["E10012"]),
        ({"input_shape": "a:-1,-1;b:", "dynamic_batch_size": "1,2"}, ["E10018", "E10012"]),
        ({"input_shape": "a:1,2", "dynamic_batch_size": "1,2"}, ["E10031"]),
        ({"input_shape": "a:1,-1", "dynamic_batch_size": "1,2"}, ["E10031"]),
        ({"input_shape": "a:-1,-1", "dynamic_batch_size": "1,2"}, ["E10018", "E10031"]),
        ({"input_shape": "a:-1,-1;b:-1,2", "dynamic_batch_size": "1,2"}, ["E10018"]),
        ({"input_shape": "a:-1,2", "dynamic_batch_size": "1;2"}, ["E10003"]),
        ({"input_shape": "a:1,3,-1,8", "dynamic_image_size": "1,2;3,4"}, ["E10019"]),
        ({"input_shape": "a:1,-1,-1", "dynamic_image_size": "1,2;3,4"}, ["E10019"]),
        ({"input_shape": "a:1,3,2,2", "dynamic_image_size": "1,2;3,4"}, ["E10019"]),
        ({"input_shape": "a:1,3,-1,-1", "dynamic_image_size": "1,2;3,4", "input_format": "ND"}, ["E10003", "E10019"]),
        ({"input_shape": "a:1,3,-1,-1", "dynamic_image_size": "1,2,3"}, ["E10020"]),
        ({"input_shape": "a:1,2", "dynamic_dims": "1;2"}, ["E10001"]),
        ({"input_shape": "-1,2", "dynamic_dims": "1;2"}, ["E10002"]),
        ({"input_shape": "a:", "dynamic_dims": "1;2"}, ["E10001"]),
        ({"input_shape": "a:-5,3,8,-1", "dynamic_dims": "1,1;2,2"}, ["E10003"]),
        ({"input_shape": "a:-5,3,8,-1", "dynamic_dims": "1;2"}, None),
        ({"input_shape": "a:"}, None),
        ({"input_shape": "a:-1,3,2,2;b:4", "dynamic_batch_size": "1,2,"}, None),
        ({"input_shape": "a:8,3,-1,-1;b:8,4", "dynamic_image_size": "300,500;600,800"}, None),
        ({"input_shape": "a:8,-1,-1,3", "dynamic_image_size": "300,500;600,800", "input_format": "NHWC"}, None),
        ({"input_shape": "a:1,3,-1,-1", "dynamic_dims": "736,1280;768,1280;", "input_format": "ND"}, None),
        ({"input_shape": "a:-1,384"}, None),
        ({"input_shape": "a:1", "input_shape_range": "b:[1~8]"}, None),
        ({"input_hint_shape": "0:[1]", "dynamic_batch_size": "1,2", "input_shape": "a:-1"}, None),
        ({}, None),
    ],
)
def test_the_shape_flags_are_checked_against_each_other_in_order(
    options: dict[str, str], expected: list[str] | None
) -> None:
    if expected is None:
        check_shape_flags(options)
    else:
        assert codes(check_shape_flags, options) == expected


DIM = st.one_of(st.integers(1, 4096), st.just(-1), st.tuples(st.integers(0, 9), st.integers(10, 99)))


def written(dim: object) -> str:
    return "~".join(map(str, dim)) if isinstance(dim, tuple) else str(dim)


@settings(deadline=None)
@given(st.dictionaries(st.text("abc_./:", min_size=1), st.lists(DIM, min_size=1, max_size=4).map(tuple), min_size=1))
def test_what_is_written_is_what_is_read(shapes: dict[str, tuple[object, ...]]) -> None:
    dims = {name: ",".join(map(written, shape)) for name, shape in shapes.items()}
    fixed = all(isinstance(dim, int) and dim > 0 for shape in shapes.values() for dim in shape)

    text = ";".join(f"{name}:{text}" for name, text in dims.items())
    if fixed:
        assert dict(parse_shapes(text, gears=False)) == shapes
    assert parse_ranges(as_range(text)) == shapes
    assert parse_ranges(";".join(f"{name}:[{text}]" for name, text in dims.items())) == shapes
