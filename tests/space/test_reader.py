"""Reading a space file: what is in it, and which mistakes are named."""

import re
from pathlib import Path

import pytest

from tests.spaces import BINS, SHIPPED, SMALL, space_of
from workbench.space.reader import read_space
from workbench.values.errors import ConfigError


def test_mistakes_in_the_file_are_named(tmp_path: Path) -> None:
    for old, new, message in (
        ("quantization.scheme: {choices", "quantization.shceme: {choices", "Did you mean 'quantization.scheme'"),
        ("[none, dynamic]", "[none, dinamic]", "'dinamic' is not a value of this parameter"),
        ("[none, dynamic]", "[]", "expected a non-empty list"),
        ("[none, dynamic]", "[none, none]", "listed twice"),
        ('["on", "off"]', "[on, maybe]", "'maybe' is not a value"),
        ("[1, 2]", "[1, yes]", "'yes' is not of kind int"),
        (
            "[1, 2]",
            "[0, 2]",
            "0 never leads to a possible candidate: serving.intra_op_threads: 0 is not from 1 to 1024",
        ),
        ("[1, 2]", "[1, 1000000]", "serving.intra_op_threads: 1000000 is not from 1 to 1024"),
        ("when: {quantization.scheme: [dynamic]}", "when: {quantization.scheme: [static]}", "'static' is not among"),
        ("when: {quantization.scheme", "when: {serving.batch", "not a parameter defined above"),
        ("{name: float}", "{name: float, quantization.weight_granularity: tensor}", "does not apply here"),
        ("{name: float}", "{name: dynamic}", "'dynamic' is used twice"),
        ("choices: [1, 2]}", "choices: [1, 2], chioces: 3}", "Did you mean 'choices'"),
        ("GeluFusionL2", "GeluFusionL9", "Did you mean"),
    ):
        assert old in SMALL

        with pytest.raises(ConfigError, match=message):
            space_of(tmp_path, SMALL.replace(old, new, 1))


def test_parameters_behind_a_comment_in_the_shipped_space_are_ready_to_use(tmp_path: Path) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    uncommented = re.sub(r"^  # (?=quantization\.|  when:|  choices:)", "  ", text, flags=re.MULTILINE)
    added = {p.name for p in space_of(tmp_path, uncommented).parameters} - {
        p.name for p in read_space(SHIPPED).parameters
    }

    assert added == {
        "quantization.bias_correction",
        "quantization.keep_float_unit",
        "quantization.sensitivity",
        "quantization.weight_algorithm",
    }


def test_a_word_that_says_no_number_of_bins_is_refused(tmp_path: Path) -> None:
    for word in ("optimal", "optimal 0", "optimal 17", "optimal four", "best 4", "optimal 4 4"):
        with pytest.raises(ConfigError, match="are not ascending whole numbers"):
            space_of(tmp_path, BINS.replace('"optimal 1"', f'"{word}"'))
