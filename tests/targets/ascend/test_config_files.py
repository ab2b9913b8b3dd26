import json

import pytest

from workbench.cann_emulator.atc.fusion import ALWAYS_ON_AT_O1, FORBIDDEN_TO_CLOSE
from workbench.targets.ascend.config_files import (
    FUSION_GROUPS,
    customize_dtypes,
)
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.errors import ConfigError


def test_groups_become_a_switch_file_in_json_with_every_pass_named() -> None:
    """atc.md §4.1 (JSON form) and §4.2 rule 6: only a name in the user's file beats a built-in entry."""
    settings = AscendCompile(disabled_fusions=("add_layer_norm",), enabled_fusions=("softmax_small",))

    name, text = settings.handed_files()["fusion_switch_file"]

    assert name == "fusion_switch.cfg"
    assert json.loads(text) == {
        "Switch": {
            "GraphFusion": {"AddLayerNormFusionPass": "off", "SoftmaxSmallOpFusionPass": "on"},
            "UBFusion": {"AddLayernormV3FusionPass": "off"},
        }
    }


def test_no_pass_is_in_two_groups_and_none_stays_on_whatever_is_said() -> None:
    """atc.md §4.3, Not closable; and §4.3, ExceptionalPassOfO1Level."""
    passes = [name for group in FUSION_GROUPS.values() for name in (*group.graph, *group.ub)]

    assert len(passes) == len(set(passes))
    assert not set(passes) & (FORBIDDEN_TO_CLOSE | ALWAYS_ON_AT_O1)


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        (("OpType::Gelu:float",), "E20101"),
        (("OpType::Gelu:OutputDtype:float,InputDtype:float",), "E20101"),
        (("a::InputDtype:float,OutputDtype:float", "a::InputDtype:int8,OutputDtype:float"), "the first wins"),
    ],
)
def test_types_of_single_operators_that_atc_refuses_are_refused(entries: tuple[str, ...], code: str) -> None:
    with pytest.raises(ConfigError, match=code):
        customize_dtypes(entries)
