"""atc.md §3.3, and option_utils.cc:262-830 of ge v8.5.0 that it cites."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.shape_flags import check_shape_flags
from workbench.cann_emulator.atc.shapes import (
    check_gears,
    is_by_index,
    parse_dynamic_batch,
    parse_dynamic_dims,
    parse_dynamic_image_size,
    parse_input_shape,
    parse_input_shape_range,
    requested_shapes,
)


def codes(call: object, *arguments: object, **named: object) -> list[str]:
    assert callable(call)
    with pytest.raises(AtcFailure) as caught:
        call(*arguments, **named)
    return [record.code for record in caught.value.records]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("a:1,128;b:1,128", {"a": (1, 128), "b": (1, 128)}),
        (" input : 1 , 3,500,500", {"input": (1, 3, 500, 500)}),
        ("scope:0:1,2", {"scope:0": (1, 2)}),
        ("scalar:;b:4", {"scalar": (), "b": (4,)}),
        ("0:1,3", {"0": (1, 3)}),
        ("1,128;1,64", {"0": (1, 128), "1": (1, 64)}),
        ("a:1~8,128", {"a": ((1, 8), 128)}),
        ("a:-1,384;b:2~2", {"a": (-1, 384), "b": (2,)}),
        ("-1,1~2;3,4", {"0": (-1, (1, 2)), "1": (3, 4)}),
        ("a:1;a:2", {"a": (1,)}),
        ("输入:1,2", {"输入": (1, 2)}),
    ],
)
def test_a_shape_is_read(text: str, shapes: dict[str, object]) -> None:
    assert list(parse_input_shape(text).items()) == list(shapes.items())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a:1,2.5", "E10002"),
        ("a:1,2x", "E10002"),
        ("a:1 2", "E10002"),
        ("a:+1", "E10002"),
        ("a", "E10002"),
        ("a:x", "E10014"),
        ("a:1,,2", "E10014"),
        ("a:1,", "E10014"),
        ("a:1;", "E10002"),
        ("a:1;2", "E10002"),
        ("a:1;;b:2", "E10002"),
        ("a:0,1", "E10011"),
        ("a:-2", "E10011"),
        (f"a:{2**63}", "E10013"),
        ("a:-1,x", "E10002"),
        (":-1", "E10002"),
        ("a:1~2~3", "E10048"),
        ("a:1~", "E10048"),
        ("a:1~-1", "E10048"),
        ("a:-1,1 2", "E10048"),
    ],
)
def test_a_shape_that_is_none_has_the_documented_code(text: str, code: str) -> None:
    assert codes(parse_input_shape, text) == [code]


def test_with_gears_a_minus_one_is_kept_and_not_a_range() -> None:
    assert parse_input_shape("a:-1,-1;b:-1,3", gears=True) == {"a": (-1, -1), "b": (-1, 3)}


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("image:[1,3,100~1080,100~1920]", {"image": (1, 3, (100, 1080), (100, 1920))}),
        (
            "tgt:[-1,-1];cache_0:[-1,-1,512]; cache_1:[-1]",
            {"tgt": (-1, -1), "cache_0": (-1, -1, 512), "cache_1": (-1,)},
        ),
        ("[1~20,3,3~6,-1],[1~2,3]", {"0": ((1, 20), 3, (3, 6), -1), "1": ((1, 2), 3)}),
        ("x:[16]", {"x": (16,)}),
    ],
)
def test_a_shape_range_is_read(text: str, shapes: dict[str, object]) -> None:
    assert parse_input_shape_range(text) == shapes


@pytest.mark.parametrize(
    "text", ["a:1~8", "a:[1~8", "a:[[1]]", "a:", "a:[1.5]", "[", "a:[1~2~3]", "a:[];b", "a:[1,x]", "a:[1];"]
)
def test_a_bad_shape_range_is_e10048(text: str) -> None:
    assert codes(parse_input_shape_range, text) == ["E10048"]


def test_a_shape_range_replaces_the_shape() -> None:
    assert requested_shapes({"input_shape": "a:1", "input_shape_range": "a:[1~8]"}) == ({"a": ((1, 8),)}, False)
    assert requested_shapes({"input_shape": "1,2"}) == ({"0": (1, 2)}, True)
    assert requested_shapes({"input_shape": "a:-1", "dynamic_batch_size": "1,2"}) == ({"a": (-1,)}, False)
    assert requested_shapes({}) == ({}, False)
    assert is_by_index("1,2;3")


@pytest.mark.parametrize(("text", "gears"), [("1,2,4,8", (1, 2, 4, 8)), ("1,2,", (1, 2)), ("4", (4,))])
def test_batch_sizes_are_read(text: str, gears: tuple[int, ...]) -> None:
    assert parse_dynamic_batch(text) == gears


@pytest.mark.parametrize(
    ("text", "code"), [("1;2", "E10003"), ("1, 2", "E10003"), ("-1,2", "E10003"), ("1,,2", "E10014")]
)
def test_bad_batch_sizes(text: str, code: str) -> None:
    assert codes(parse_dynamic_batch, text) == [code]


def test_image_sizes_are_read() -> None:
    assert parse_dynamic_image_size("736,992;736, 1312;") == ((736, 992), (736, 1312))


@pytest.mark.parametrize(
    ("text", "code"),
    [("1,2,3", "E10020"), ("1", "E10020"), ("1,x", "E10003"), ("1,2;;3,4", "E10020"), ("1,", "E10014")],
)
def test_bad_image_sizes(text: str, code: str) -> None:
    assert codes(parse_dynamic_image_size, text) == [code]


def test_dims_are_read() -> None:
    assert parse_dynamic_dims("1,64;1,128;", open_axes=2) == ((1, 64), (1, 128))
    assert parse_dynamic_dims("262;326") == ((262,), (326,))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1,64;1", "E10003"),
        ("1,64,3", "E10003"),
        ("1,x", "E10001"),
        ("1,-1", "E10001"),
        (";", "E10004"),
        ("", "E10004"),
    ],
)
def test_bad_dims(text: str, code: str) -> None:
    assert codes(parse_dynamic_dims, text, open_axes=2) == [code]


def test_bert_with_two_open_inputs_needs_four_values_a_gear() -> None:
    """§3.3: ids:-1,-1;mask:-1,-1 needs four values, not two."""
    options = {"input_shape": "ids:-1,-1;mask:-1,-1", "dynamic_dims": "1,64;1,128"}
    assert codes(check_shape_flags, options) == ["E10003"]
    check_shape_flags({**options, "dynamic_dims": "1,64,1,64;1,128,1,128"})


@pytest.mark.parametrize(
    ("gears", "code"),
    [
        ([(1,)], "E10035"),
        ([], "E10035"),
        ([(1, 2), (1,)], "E10037"),
        ([(1,), (-1,)], "E10038"),
        ([(1, 2), (3, 4), (1, 2)], "E10039"),
    ],
)
def test_a_list_of_gears_has_at_least_two_of_one_length_and_no_two_the_same(
    gears: list[tuple[int, ...]], code: str
) -> None:
    assert codes(check_gears, gears) == [code]


def test_zero_and_any_number_of_gears_are_allowed() -> None:
    """multi_batch_options.cc asks for no more than 'not negative'; E10036 exists and is not raised."""
    check_gears([(size,) for size in range(200)])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"input_shape": "a:1~2", "dynamic_batch_size": "1,2"}, ["E10040"]),
        ({"input_shape": "a:1~2", "dynamic_batch_size": "1,2", "dynamic_dims": "1;2"}, ["E10040"]),
        ({"input_shape": "a:-1", "dynamic_batch_size": "1,2", "dynamic_dims": "1;2"}, ["E10009"]),
        ({"input_shape": "a:-1", "dynamic_batch_size": "1,2", "dynamic_image_size": "1,2;3,4"}, ["E10009"]),
        ({"input_shape_range": "a:[1~2]", "dynamic_dims": "1;2"}, ["E10009"]),
        ({"input_shape_range": "a:[1~2]", "dynamic_dims": "1;2", "input_hint_shape": "0:[1]"}, ["E10001"]),
        ({"input_hint_shape": "0:[1]", "dynamic_batch_size": "1,2", "input_shape": "a:-1"}, ["E10001"]),
        ({"dynamic_batch_size": "1,2"}, ["E10004"]),
        ({"dynamic_dims": "1;2"}, ["E10004"]),
        ({"input_shape": "a:-1;b:", "dynamic_batch_size": "1,2"}, ["E10012"]),
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
        ({"input_shape": "a:0"}, ["E10011"]),
        ({"input_shape": "a:1.0"}, ["E10002"]),
        ({"input_shape": "a:"}, None),
        ({"input_shape": "a:-1,3,2,2;b:4", "dynamic_batch_size": "1,2,"}, None),
        ({"input_shape": "a:8,3,-1,-1;b:8,4", "dynamic_image_size": "300,500;600,800"}, None),
        ({"input_shape": "a:8,-1,-1,3", "dynamic_image_size": "300,500;600,800", "input_format": "NHWC"}, None),
        ({"input_shape": "a:1,3,-1,-1", "dynamic_dims": "736,1280;768,1280;", "input_format": "ND"}, None),
        ({"input_shape": "a:-1,384"}, None),
        ({"input_shape": "a:1", "input_shape_range": "b:[1~8]"}, None),
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

    assert parse_input_shape(";".join(f"{name}:{text}" for name, text in dims.items())) == shapes
    assert parse_input_shape_range(";".join(f"{name}:[{text}]" for name, text in dims.items())) == shapes


def codes_of(options: dict[str, str]) -> set[str]:
    try:
        check_shape_flags(options)
    except AtcFailure as error:
        return {record.code for record in error.records}
    return set()


@settings(deadline=None)
@given(st.text("ab:;,~-1.2[] ", max_size=20))
def test_any_text_is_a_shape_or_a_documented_failure(text: str) -> None:
    documented = {"E10001", "E10002", "E10003", "E10004", "E10009"}
    documented |= {"E10011", "E10013", "E10014", "E10040", "E10048"}

    assert codes_of({"input_shape": text}) <= documented
    assert codes_of({"input_shape": text, "dynamic_dims": "1;2"}) <= documented
    assert codes_of({"input_shape_range": text}) <= documented
