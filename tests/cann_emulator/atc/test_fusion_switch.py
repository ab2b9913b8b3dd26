"""The switch file and who decides about a pass (atc.md §4.1, §4.2)."""

import json
from pathlib import Path

import pytest

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.fusion import ALWAYS_ON_AT_O1, BUILT_IN, FORBIDDEN_TO_CLOSE, Switches, read_switches


def read(folder: Path, text: str, oo_level: str = "O3") -> Switches:
    (folder / "switch.cfg").write_text(text)
    return read_switches(str(folder / "switch.cfg"), oo_level)


def test_lines_of_text_switch_both_groups(tmp_path: Path) -> None:
    switches = read(tmp_path, "GeluFusionPass:off\n\nTbeEltwiseFusionPass: off\n")
    for group in BUILT_IN:
        assert not switches.is_on("GeluFusionPass", group)
        assert not switches.is_on("TbeEltwiseFusionPass", group)


def test_all_does_not_reach_passes_with_a_line_of_their_own_in_the_built_in_file(tmp_path: Path) -> None:
    """atc.md §4.2: explicit entries, the built-in ones too, come before "ALL"."""
    off = read(tmp_path, '{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}')
    on = read(tmp_path, '{"Switch": {"GraphFusion": {"ALL": "on"}}}')
    assert off.is_on("LayerNormGradV3FusionPass", "GraphFusion")
    assert off.is_on("TbeMatmulFixPipeFusionPass", "UBFusion")
    assert not off.is_on("GeluFusionPass", "GraphFusion")
    assert not on.is_on("SoftmaxSmallOpFusionPass", "GraphFusion")


def test_protected_passes_stay_on_whatever_is_said(tmp_path: Path) -> None:
    for name in FORBIDDEN_TO_CLOSE | ALWAYS_ON_AT_O1:
        text = json.dumps({"Switch": {"GraphFusion": {name: "off", "ALL": "off"}, "UBFusion": {name: "off"}}})
        assert all(read(tmp_path, text, level).is_on(name, group) for level in ("O3", "O1") for group in BUILT_IN), name


def test_files_of_another_form_are_refused_by_code(tmp_path: Path) -> None:
    json_forms = ('{"Switch": {"GraphFusion": {"A": "OFF"}}}', '{"Switches": {}}', '{"Switch": {"Graph": {}}}', "[]")
    for code, texts in {
        "E21001": ("",),
        "E21002": (*json_forms, '{"Priority": []}', '{"ExceptionalPassOfO1Level": {"A": "on"}}'),
        "E20003": ("A:off\nA:on", "A:Off", "A off", '{"Switch": {"GraphFusion": {"A": "off"}}'),  # broken JSON is text
    }.items():
        for text in texts:
            with pytest.raises(AtcFailure) as caught:
                read(tmp_path, text)
            assert [record.code for record in caught.value.records] == [code], text
