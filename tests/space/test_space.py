"""Search spaces: which mistakes in the file are named, conditions, rules, presets, and what is never proposed."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spaces import BINS, LENGTHS, SHIPPED, SMALL, shipped, space_of
from workbench.space.reader import read_space
from workbench.space.served_bins import with_lengths
from workbench.space.space import (
    Forbidden,
    assignment_of,
    build,
    combinations,
    draw,
    explain,
    raw_size,
    size,
)
from workbench.space.writer import space_yaml
from workbench.values.errors import ConfigError


def test_a_candidate_leads_back_to_an_assignment_that_builds_it() -> None:
    for name in ("onnxruntime", "openvino", "cpu", "ascend910b3"):
        space = with_lengths(read_space(SHIPPED.with_name(f"{name}.yaml")), lambda: LENGTHS, 256)
        rng, led_back = random.Random(0), 0
        for _ in range(150):
            try:
                candidate = build(space, draw(space, rng))
            except Forbidden:
                continue
            assignment = assignment_of(space, candidate)
            assert assignment is not None, candidate.parameters()
            assert build(space, assignment) == candidate
            led_back += 1
        assert led_back > 10


def test_the_size_counts_distinct_candidates_and_compiles(tmp_path: Path) -> None:
    space = space_of(tmp_path, SMALL)
    found = size(space)
    built = []
    for assignment in combinations(space):
        try:
            built.append(build(space, assignment))
        except Forbidden:
            continue

    assert raw_size(space) == len(list(combinations(space))) == 24
    assert found.exact
    assert found.candidates == len({c.id for c in built}) == 16
    assert found.compiles == 8
    large = size(shipped())  # which is counted without walking it
    assert not large.exact
    assert (large.candidates, large.compiles) == (raw_size(shipped()), raw_size(shipped()) // 8), "bins and threads"


@settings(deadline=None)  # the first draw pays for imports
@given(st.integers(min_value=0))
def test_equal_assignments_give_equal_ids_and_every_draw_builds_or_is_forbidden(seed: int) -> None:
    space = shipped()
    assignment = draw(space, random.Random(seed))
    try:
        candidate = build(space, assignment)
    except Forbidden:
        return

    assert build(space, dict(reversed(assignment.items()))).id == candidate.id


def test_the_digest_ignores_comments_and_presets_but_no_choice(tmp_path: Path) -> None:
    first = space_of(tmp_path, SMALL).digest

    assert space_of(tmp_path, SMALL + "# a comment\n  - {name: other, serving.intra_op_threads: 2}\n").digest == first
    assert space_of(tmp_path, SMALL.replace("choices: [1, 2]", "choices: [1, 2, 4]")).digest != first


def test_every_parameter_of_the_shipped_space_is_explained() -> None:
    rows = explain(read_space(SHIPPED))

    assert all(row[1] and row[3] for row in rows)
    assert ("quantization.percentile", "99.999, 99.99", "quantization.algorithm is percentile") in [
        row[:3] for row in rows
    ]


def test_a_space_tells_its_words_and_builds_nothing_from_them(tmp_path: Path) -> None:
    space = space_of(tmp_path, BINS)

    (shown,) = [row for row in explain(space) if row[0] == "serving.sequence_bins"]
    assert shown[1] == "optimal 1, optimal 3, 256, 32 64 256"
    assert "least padding" in shown[3]
    assert (size(space).candidates, size(space).exact) == (5, False)
    with pytest.raises(ValueError, match="'optimal 3' needs the lengths of a dataset"):
        build(space, space.presets[0].assignment)


def test_every_shipped_space_is_written_and_read_back_as_it_is(tmp_path: Path) -> None:
    for file in sorted(SHIPPED.parent.glob("*.yaml")):
        space = read_space(file)
        again = space_of(tmp_path, space_yaml(space))
        assert again.digest == space.digest
        assert [(p.name, p.assignment) for p in again.presets] == [(p.name, p.assignment) for p in space.presets]
        assert [p.about for p in again.parameters] == [p.about for p in space.parameters]


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
