"""Search spaces: conditions, rules, presets, and what a sampler may never propose."""

import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.space import (
    Forbidden,
    Parameter,
    SearchSpace,
    build,
    combinations,
    complete,
    draw,
    explain,
    raw_size,
    read_space,
    size,
    with_lengths,
)

SHIPPED = Path(__file__).parent.parent / "search_spaces" / "onnxruntime.yaml"
SMALL = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic]}
  quantization.weight_granularity: {choices: [tensor, channel], when: {quantization.scheme: [dynamic]}}
  compile.graph_optimization: {choices: [all, basic]}
  compile.fusions.GeluFusionL2: {choices: ["on", "off"]}
  serving.intra_op_threads: {choices: [1, 2]}
forbid:
  - {quantization.scheme: [dynamic], compile.graph_optimization: [basic], reason: stays in float}
presets:
  - {name: float}
  - {name: dynamic, quantization.scheme: dynamic, quantization.weight_granularity: channel}
"""


LENGTHS = np.array([10, 20, 30, 40, 60, 100, 200, 300])
BINS = """
version: 1
target: onnxruntime
parameters:
  serving.sequence_bins: {choices: ["optimal 1", "optimal 3", "quantiles 3", "256", "32 64 256"]}
  serving.batch: {choices: [1, 4], when: {serving.sequence_bins: ["optimal 3", "256"]}}
forbid:
  - {serving.sequence_bins: ["optimal 3"], serving.batch: [4], reason: not enough texts}
presets:
  - {name: bins, serving.sequence_bins: "optimal 3"}
"""


def shipped() -> SearchSpace:
    return with_lengths(read_space(SHIPPED), lambda: LENGTHS, 256)


def space_of(folder: Path, text: str) -> SearchSpace:
    path = folder / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return read_space(path)


def test_a_parameter_is_asked_for_only_where_it_applies(tmp_path: Path) -> None:
    space = space_of(tmp_path, SMALL)

    assert "quantization.weight_granularity" not in complete(space, {})
    assert complete(space, {"quantization.scheme": "dynamic"})["quantization.weight_granularity"] == "tensor"


def test_forbidden_combinations_are_refused_with_the_users_reason(tmp_path: Path) -> None:
    space = space_of(tmp_path, SMALL)
    assignment = complete(space, {"quantization.scheme": "dynamic", "compile.graph_optimization": "basic"})

    with pytest.raises(Forbidden, match="stays in float"):
        build(space, assignment)


def test_what_the_file_forgot_to_forbid_the_candidate_itself_refuses(tmp_path: Path) -> None:
    space = space_of(
        tmp_path,
        SMALL.replace("compile.graph_optimization: [basic], reason", "reason").replace(
            "  - {quantization.scheme: [dynamic], reason: stays in float}\n", "  []\n"
        ),
    )

    with pytest.raises(Forbidden, match="leaves INT8 layers in float"):
        build(
            space,
            {
                "quantization.scheme": "dynamic",
                "quantization.weight_granularity": "tensor",
                "compile.graph_optimization": "basic",
            },
        )


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


def test_a_large_space_is_counted_without_walking_it() -> None:
    found, before = size(shipped()), size(read_space(SHIPPED))
    # 2 levels x 16 fusions x 2 threads for INT8: (2 dynamic + (3 + 2) * 2 * 2 * 2 * 2 * 5 static); 3 levels for float.
    exact = 16 * 2 * (2 * (2 + 5 * 2 * 2 * 2 * 2 * 5) + 3)

    assert found.exact
    assert (found.candidates, found.compiles) == (4 * exact, exact // 2)  # four sets of bins, which compile nothing
    assert not before.exact, "words may come to the same bins"
    assert (before.candidates, before.compiles) == (found.candidates, found.compiles)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_assignments_are_counted_as_they_are_walked(data: st.DataObject) -> None:
    parameters: list[Parameter] = []
    for number in range(data.draw(st.integers(1, 5))):
        when = {}
        for earlier in data.draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else ():
            choices = parameters[earlier].choices
            when[f"p{earlier}"] = tuple(data.draw(st.sets(st.sampled_from(choices), min_size=1)))
        choices = tuple(range(data.draw(st.integers(1, 3))))
        parameters.append(Parameter(name=f"p{number}", choices=choices, when=when, about=""))
    space = SearchSpace(path=Path("s"), targets=("t",), parameters=tuple(parameters), forbid=(), presets=())

    assert raw_size(space) == sum(1 for _ in combinations(space))


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("quantization.scheme: {choices", "quantization.shceme: {choices", "Did you mean 'quantization.scheme'"),
        ("[none, dynamic]", "[none, dinamic]", "'dinamic' is not a value of this parameter"),
        ("[none, dynamic]", "[]", "expected a non-empty list"),
        ("[none, dynamic]", "[none, none]", "listed twice"),
        ('["on", "off"]', "[on, maybe]", "'maybe' is not a value"),
        ("[1, 2]", "[1, yes]", "'yes' is not of kind int"),
        ("[1, 2]", "[0, 2]", "0 never leads to a possible candidate: serving.intra_op_threads: 0 is less than 1"),
        ("when: {quantization.scheme: [dynamic]}", "when: {quantization.scheme: [static]}", "'static' is not among"),
        ("when: {quantization.scheme", "when: {serving.batch", "not a parameter defined above"),
        ("{name: float}", "{name: float, quantization.weight_granularity: tensor}", "does not apply here"),
        ("{name: float}", "{name: dynamic}", "'dynamic' is used twice"),
        ("choices: [1, 2]}", "choices: [1, 2], chioces: 3}", "Did you mean 'choices'"),
        ("GeluFusionL2", "GeluFusionL9", "Did you mean"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL

    with pytest.raises(ConfigError, match=message):
        space_of(tmp_path, SMALL.replace(old, new, 1))


def test_a_space_without_a_setting_that_its_scheme_needs_is_refused(tmp_path: Path) -> None:
    text = "version: 1\ntarget: onnxruntime\nparameters:\n  quantization.scheme: {choices: [none, dynamic]}\n"

    with pytest.raises(ConfigError, match=r"'dynamic' never leads to a possible candidate: .*weight_granularity"):
        space_of(tmp_path, text)


def test_every_parameter_of_the_shipped_space_is_explained() -> None:
    rows = explain(read_space(SHIPPED))

    assert all(row[1] and row[3] for row in rows)
    assert ("quantization.percentile", "99.999, 99.99", "quantization.algorithm is percentile") in [
        row[:3] for row in rows
    ]


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


def test_the_shipped_presets_differ_and_the_first_is_float() -> None:
    space = shipped()
    found = [build(space, complete(space, preset.assignment)) for preset in space.presets]

    assert found[0].quantization.scheme == "none"
    assert len({candidate.id for candidate in found}) == len(found)
    assert "auto" in [candidate.quantization.balance for candidate in found]


def test_words_for_bins_become_numbers_everywhere_once_the_lengths_are_known(tmp_path: Path) -> None:
    space = with_lengths(space_of(tmp_path, BINS), lambda: LENGTHS, 256)
    optimal = "40 104 256"

    assert space.parameters[0].choices == ("256", optimal, "32 104 256", "32 64 256"), "256 is what optimal 1 comes to"
    assert space.parameters[1].when == {"serving.sequence_bins": (optimal, "256")}
    assert space.forbid[0].values["serving.sequence_bins"] == (optimal,)
    assert build(space, space.presets[0].assignment).serving.sequence_bins == (40, 104, 256)
    with pytest.raises(Forbidden, match="not enough texts"):
        build(space, {"serving.sequence_bins": optimal, "serving.batch": 4})
    assert size(space).exact


def test_a_space_tells_its_words_and_builds_nothing_from_them(tmp_path: Path) -> None:
    space = space_of(tmp_path, BINS)

    (shown,) = [row for row in explain(space) if row[0] == "serving.sequence_bins"]
    assert shown[1] == "optimal 1, optimal 3, quantiles 3, 256, 32 64 256"
    assert "least padding" in shown[3]
    assert (size(space).candidates, size(space).exact) == (6, False)
    with pytest.raises(ValueError, match="'optimal 3' needs the lengths of a dataset"):
        build(space, space.presets[0].assignment)


def test_the_lengths_are_not_counted_for_a_space_without_words(tmp_path: Path) -> None:
    def never() -> None:
        raise AssertionError("nobody needs them")

    with_lengths(
        space_of(
            tmp_path,
            BINS.replace("optimal 1", "512")
            .replace("optimal", "0")
            .replace("0 3", "64 512")
            .replace("quantiles 3", "96 512"),
        ),
        never,
        200,
    )
    with_lengths(space_of(tmp_path, SMALL), never, None)


@pytest.mark.parametrize(
    ("max_length", "message"),
    [
        (None, "serving.sequence_bins: the dataset's samples are not texts, which have lengths"),
        (300, "no bin of '256' holds a text of the dataset's max_length 300. Add 300"),
    ],
)
def test_bins_that_do_not_fit_the_data_are_refused(tmp_path: Path, max_length: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        with_lengths(space_of(tmp_path, BINS), lambda: LENGTHS, max_length)


@pytest.mark.parametrize("word", ["optimal", "optimal 0", "optimal 17", "optimal four", "best 4", "optimal 4 4"])
def test_a_word_that_says_no_number_of_bins_is_refused(tmp_path: Path, word: str) -> None:
    with pytest.raises(ConfigError, match="are not ascending whole numbers"):
        space_of(tmp_path, BINS.replace('"optimal 1"', f'"{word}"'))


def test_bins_on_ascend_are_multiples_of_sixteen_and_compiled_once(tmp_path: Path) -> None:
    text = """
version: 1
target: ascend910b3
service: {max_batch_size: [1, 8], batch_timeout_ms: [2], workers: [1]}
parameters:
  quantization.scheme: {choices: [none]}
  precision.mode: {choices: [force_fp16]}
  compile.sequence_bins: {choices: ["optimal 1", "optimal 3"]}
  serving.batch: {choices: [1, 4]}
"""
    space = with_lengths(space_of(tmp_path, text), lambda: LENGTHS, 256)
    found = [build(space, a) for a in combinations(space)]

    assert {c.sequence_bins for c in found} == {(256,), (48, 112, 256)}
    assert {c.compile.batches for c in found if c.serving.batch == 4} == {(1, 4, 8)}  # type: ignore[union-attr]  # Ascend
