"""Both layouts of the error block: atc.md §5.1 and §5.3."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.targets.ascend.atc.codes import Message, Output, parse_output

NEW = """\
ATC start working now, please wait for a moment.
....
...
ATC run failed, Please check the detail log, Try 'atc --help' for more information
[PID: 812] 2026-01-02-03:04:05.006.007 Not_Supported_Operator(E13010): No operator plugin is registered for Op: \
gelu_0, optype: ai.onnx::20::Gelu.
        Possible Cause: The operator is new.
        Solution: 1. If the operator is a custom operator, register related deliverables.
2. If the operator is a built-in operator, install the package that supports this operator version.
        TraceBack (most recent call last):
        No operator plugin is registered for Op: gelu_1, optype: ai.onnx::20::Gelu.
        Parse model failed.

"""

OLD = """\
ATC start working now, please wait for a moment.
ATC run failed, Please check the detail log, Try 'atc --help' for more information
E10016: [PID: 7] 2023-05-06-07:08:09.100.200 Opname [input_idz] specified in [--input_shape] is not found in the model.
        Solution: Specify the name of an existing node in the graph.
        TraceBack (most recent call last):
        Check input shape failed.[FUNC:f][FILE:g.cc][LINE:3]

"""


def test_the_layout_of_8_5_is_read() -> None:
    output = parse_output(NEW)

    assert output == Output(
        errors=(
            Message(
                code="E13010",
                title="Not_Supported_Operator",
                text="No operator plugin is registered for Op: gelu_0, optype: ai.onnx::20::Gelu.",
                trace=(
                    "No operator plugin is registered for Op: gelu_1, optype: ai.onnx::20::Gelu.",
                    "Parse model failed.",
                ),
            ),
        ),
        words=output.words,
    )


def test_the_layout_of_8_1_and_before_is_read() -> None:
    (message,) = parse_output(OLD).errors

    assert message.code == "E10016"
    assert message.text.startswith("Opname [input_idz] specified in")
    assert message.trace == ("Check input shape failed.[FUNC:f][FILE:g.cc][LINE:3]",)


def test_a_success_may_come_with_warnings() -> None:
    output = parse_output(
        "ATC start working now, please wait for a moment.\n...\nATC run success, welcome to the next use.\n"
        "[PID: 9] 2026-01-02-03:04:05.006.007 Performance_Not_Optimal_Operator(W11001): Op a does not hit.\n"
        "W11003: [PID: 9] 2026-01-02-03:04:05.006.007 Operator b lacks required tiling implementation.\n\n"
    )

    assert output.errors == ()
    assert [(m.code, m.text) for m in output.warnings] == [
        ("W11001", "Op a does not hit."),
        ("W11003", "Operator b lacks required tiling implementation."),
    ]


@pytest.mark.parametrize(
    "head",
    ["E19999[PID: 3] 2026-01-02-03:04:05.006.007 (E19999):  ", "E19999: [PID: 3] 2026-01-02-03:04:05.006.007 "],
    ids=["8.5", "8.1"],
)
def test_an_inner_error_takes_its_words_from_the_records_behind_it(head: str) -> None:
    """If all are inner, `<Code>: Inner Error!` and then the records: error_manager.cc:549-565 of runtime v8.5.0."""
    output = parse_output(
        "ATC run failed, Please check the detail log\nE19999: Inner Error!\n"
        f"{head}domain ai.onnx is not imported[FUNC:x]\n"
        "        TraceBack (most recent call last):\n       Parse failed\n\n"
    )

    (message,) = output.errors
    assert message.text == "Inner Error! domain ai.onnx is not imported[FUNC:x]"
    assert message.trace == ("Parse failed",)


def test_an_unknown_flag_is_told_on_stderr_only() -> None:
    output = parse_output(
        "ATC start working now, please wait for a moment.\nERROR: unknown command line flag 'x'\n"
        "ATC run failed, Please check the detail log, Try 'atc --help' for more information\n\n"
    )

    assert output.errors == ()
    assert output.complaints == ("ERROR: unknown command line flag 'x'",)


@given(
    st.one_of(
        st.text(),
        st.binary().map(lambda data: data.decode("utf-8", errors="replace")),
        st.lists(st.sampled_from([*NEW.splitlines(), *OLD.splitlines(), "", "E10001:", "(E10001): "])).map("\n".join),
    )
)
@settings(deadline=None)
def test_no_text_is_too_strange(text: str) -> None:
    output = parse_output(text)

    assert all(message.code for message in (*output.errors, *output.warnings))
