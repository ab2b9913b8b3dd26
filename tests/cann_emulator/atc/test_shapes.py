"""atc.md §3.3 and §13a, and option_utils.cc:262-830 of ge v8.5.0 that they cite."""

import pytest

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.shapes import check_shape_flags


def codes(call: object, *arguments: object, **named: object) -> list[str]:
    assert callable(call)
    with pytest.raises(AtcFailure) as caught:
        call(*arguments, **named)
    return [record.code for record in caught.value.records]


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
