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


def test_batch_sizes_are_digits_and_commas() -> None:
    for text in ("1,2,4,8", "1,2,", "4", "1,,2", ",", ",,1", "0", "", "9" * 5000):
        check_dynamic_batch(text)
    for text in ("1;2", "1, 2", " 1", "-1,2", "1,x", "²", "1,２"):
        assert code(check_dynamic_batch, text) == "E10003", text


def test_image_sizes_are_pairs_of_anything_made_of_digits_and_blanks() -> None:
    for text in ("736,992;736, 1312;", "1,2", "1,", ",", " , ;3,4"):
        check_dynamic_image_size(text)
    for text in ("1,2,3", "1", "1,2;;3,4", ";", "", "1,2;;"):
        assert code(check_dynamic_image_size, text) == "E10020", text
    for text in ("1,x", "1,２", "1,-2"):
        assert code(check_dynamic_image_size, text) == "E10003", text


def test_dims_are_counted_with_their_empty_parts() -> None:
    """Blanks are not left out (option_utils.cc:403), an empty group is one empty part, and nothing at all no list."""
    for text in ("1,64;1,128;", "1,64", ",;,", "1,;,2", "01,1"):
        check_dynamic_dims(text, open_axes=2)
    for text in ("262;326", ";;", ";1"):
        check_dynamic_dims(text, open_axes=1)
    for text in ("262;326", ";;", ";1", "1,64;1", "1,64,3"):
        assert code(check_dynamic_dims, text, open_axes=2) == "E10003", text
    for text in ("1,x", "1,-1", "1,1; 2,2", "1, 1", "1,1 ;2,2", "1,２", ";", ""):
        assert code(check_dynamic_dims, text, open_axes=2) == "E10001", text


def test_empty_parts_make_no_values_and_empty_groups_no_gears() -> None:
    """multi_batch_options.cc:488; the gears keep the order they are written in."""
    for flag, text, gears in (
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
    ):
        assert parse_gears(flag, text) == gears
    # a blank in an image size is an inner error of the compiler
    assert code(parse_gears, "dynamic_image_size", "736, 992;1,2") == "E19999"


def test_a_list_of_gears_has_at_least_two_of_one_length_and_no_two_the_same() -> None:
    for gears in ([(1,)], []):
        assert code(check_gears, gears) == "E10035"
    assert code(check_gears, [(1, 2), (1,)]) == "E10037"
    assert code(check_gears, [(1, 2), (3, 4), (1, 2)]) == "E10039"


def test_zero_and_any_number_of_gears_are_allowed() -> None:
    """multi_batch_options.cc asks for no more than 'not negative'; E10036 exists and is not raised."""
    check_gears([(size,) for size in range(200)])


def test_the_flag_that_makes_gears() -> None:
    assert gear_flag({"dynamic_dims": "1;2"}) == "dynamic_dims"
    assert gear_flag({"dynamic_dims": "", "input_shape": "a:1"}) == ""
