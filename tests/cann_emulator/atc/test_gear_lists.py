"""atc.md §3.3 and §13a: what the flags ask of a list of gears, and which gears the compiler reads in it."""

import pytest

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.shapes import (
    INT64_MAX,
    check_dynamic_batch,
    check_dynamic_dims,
    check_dynamic_image_size,
    check_gears,
    gear_flag,
    parse_gears,
)


def code(call: object, *arguments: object, **named: object) -> str:
    assert callable(call)
    with pytest.raises(AtcFailure) as caught:
        call(*arguments, **named)
    return caught.value.records[0].code


@pytest.mark.parametrize("text", ["1,2,4,8", "1,2,", "4", "1,,2", ",", ",,1", "0", "", "9" * 5000])
def test_batch_sizes_are_digits_and_commas(text: str) -> None:
    check_dynamic_batch(text)


@pytest.mark.parametrize("text", ["1;2", "1, 2", " 1", "-1,2", "1,x", "²", "1,２"])
def test_other_batch_sizes(text: str) -> None:
    assert code(check_dynamic_batch, text) == "E10003"


@pytest.mark.parametrize("text", ["736,992;736, 1312;", "1,2", "1,", ",", " , ;3,4"])
def test_image_sizes_are_pairs_of_anything_made_of_digits_and_blanks(text: str) -> None:
    check_dynamic_image_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2,3", "E10020"),
        ("1", "E10020"),
        ("1,2;;3,4", "E10020"),
        (";", "E10020"),
        ("", "E10020"),
        ("1,2;;", "E10020"),
        ("1,x", "E10003"),
        ("1,２", "E10003"),
        ("1,-2", "E10003"),
    ],
)
def test_other_image_sizes(text: str, expected: str) -> None:
    assert code(check_dynamic_image_size, text) == expected


@pytest.mark.parametrize("text", ["1,64;1,128;", "1,64", ",;,", "1,;,2", "01,1"])
def test_dims_are_counted_with_their_empty_parts(text: str) -> None:
    check_dynamic_dims(text, open_axes=2)


@pytest.mark.parametrize("text", ["262;326", ";;", ";1"])
def test_an_empty_group_is_one_empty_part(text: str) -> None:
    check_dynamic_dims(text, open_axes=1)
    assert code(check_dynamic_dims, text, open_axes=2) == "E10003"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,64;1", "E10003"),
        ("1,64,3", "E10003"),
        ("1,x", "E10001"),
        ("1,-1", "E10001"),
        ("1,1; 2,2", "E10001"),
        ("1, 1", "E10001"),
        ("1,1 ;2,2", "E10001"),
        ("1,２", "E10001"),
        (";", "E10001"),
        ("", "E10001"),
    ],
)
def test_other_dims(text: str, expected: str) -> None:
    """Blanks are not left out (option_utils.cc:403), and nothing at all is no list."""
    assert code(check_dynamic_dims, text, open_axes=2) == expected


@pytest.mark.parametrize(
    ("flag", "text", "gears"),
    [
        ("dynamic_batch_size", "1,,2", ((1,), (2,))),
        ("dynamic_batch_size", "8,1,", ((8,), (1,))),
        ("dynamic_batch_size", ",", ()),
        ("dynamic_batch_size", "0,007", ((0,), (7,))),
        ("dynamic_batch_size", "9" * 5000, ((INT64_MAX,),)),
        ("dynamic_image_size", "736,992;736,1312;", ((736, 992), (736, 1312))),
        ("dynamic_image_size", "736,;,1312", ((736,), (1312,))),
        ("dynamic_dims", "1,64;;1,128;", ((1, 64), (1, 128))),
        ("dynamic_dims", ";;", ()),
        ("dynamic_dims", "1,;,2", ((1,), (2,))),
        ("dynamic_dims", ",", ()),
    ],
)
def test_empty_parts_make_no_values_and_empty_groups_no_gears(
    flag: str, text: str, gears: tuple[tuple[int, ...], ...]
) -> None:
    """multi_batch_options.cc:488; the gears keep the order they are written in."""
    assert parse_gears(flag, text) == gears


def test_a_blank_in_an_image_size_is_an_inner_error_of_the_compiler() -> None:
    assert code(parse_gears, "dynamic_image_size", "736, 992;1,2") == "E19999"


@pytest.mark.parametrize(
    ("gears", "expected"),
    [([(1,)], "E10035"), ([], "E10035"), ([(1, 2), (1,)], "E10037"), ([(1, 2), (3, 4), (1, 2)], "E10039")],
)
def test_a_list_of_gears_has_at_least_two_of_one_length_and_no_two_the_same(
    gears: list[tuple[int, ...]], expected: str
) -> None:
    assert code(check_gears, gears) == expected


def test_zero_and_any_number_of_gears_are_allowed() -> None:
    """multi_batch_options.cc asks for no more than 'not negative'; E10036 exists and is not raised."""
    check_gears([(size,) for size in range(200)])


def test_the_flag_that_makes_gears() -> None:
    assert gear_flag({"dynamic_dims": "1;2"}) == "dynamic_dims"
    assert gear_flag({"dynamic_dims": "", "input_shape": "a:1"}) == ""
