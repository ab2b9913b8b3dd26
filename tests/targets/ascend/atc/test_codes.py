import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference_pages import atc_codes
from workbench.targets.ascend.atc.codes import Message, Output, explain, meaning_of, operator_of, parse_output, table


def test_every_code_of_the_reference_page_and_of_the_table_has_a_cause_and_a_remedy() -> None:
    for code in atc_codes() | set(table().codes):
        meaning = meaning_of(Message(code=code, text="something"))
        assert meaning.problem not in ("", "ATC failed", "ATC warned"), f"{code}: only codes that nobody listed"
        assert meaning.remedy.endswith("."), code


@pytest.mark.parametrize(
    ("code", "text", "problem", "remedy"),
    [
        ("E10001", "Value NULL for parameter --input_shape is invalid. Reason: contains -1", "dynamic axes", "batches"),
        (
            "E10001",
            "Value [NULL] for parameter [input_shape] is invalid. Reason: [maybe you should set input_shape]",
            "dynamic axes",
            "sequence_bins",
        ),
        ("E10001", "Value /w/a b.onnx for --model is invalid. Reason: can only contain 'a-z'", "refuses", "letters"),
        ("E10001", "Value /w/m for --model is invalid. Reason: No such file or directory", "does not exist", "again"),
        ("E13001", "Failed to open file /w/m. Reason: Permission denied.", "rights", "read and write"),
        ("E10016", "Opname input_idz specified in --input_shape is not found", "not in the model", "ONNX graph"),
        ("E10035", "--dynamic_dims has 1 profiles, which is less than 2", "single gear", "static"),
        ("E16005", "The model has 2 --domain_version fields", "more than one operator set", "default opset_import"),
        ("E13010", "Op: a, optype: ai.onnx::13::QuantizeLinear.", "quantization operators", "float model"),
        ("E13010", "Op: a, optype: ai.onnx::20::Gelu.", "opset", "11 to 17"),
        ("EZ3003", "found for [s], optype [ScatterNd]. int64 is not supported", "no kernel for int64", "int32"),
        ("E20101", "Value Ascend9 for ge.socVersion is invalid. Reason: no platform file", "chip", "npu-smi"),
        ("EE1001", "The argument is invalid. Reason: SoC version [Ascend9] is invalid.", "chip", "npu-smi"),
        ("E20101", "Value x for precision is invalid. Reason: bfloat16 not supported by this soc", "bfloat16", "fp16"),
        ("E40020", "Failed to import Python module numpy", "Python", "requirements"),
        ("E13004", "Failed to write file m.om. Reason: No space left on device.", "disk is full", "space"),
        ("E19999", "std::bad_alloc", "memory", "fewer"),
    ],
)
def test_the_words_of_a_record_tell_more_than_its_code(code: str, text: str, problem: str, remedy: str) -> None:
    """atc.md §8: failures seen with BERT-like models."""
    meaning = meaning_of(Message(code=code, text=text))

    assert problem in meaning.problem
    assert remedy in meaning.remedy


@pytest.mark.parametrize(
    ("text", "operator", "kind"),
    [
        (
            "No operator plugin is registered for Op: /e/Gelu, optype: ai.onnx::20::Gelu.",
            "/e/Gelu",
            "ai.onnx::20::Gelu",
        ),
        ("No parser is registered for Op [Erf_3, optype [ai.onnx::9::Erf]].", "Erf_3", "ai.onnx::9::Erf"),
        ("No supported Ops kernel and engine are found for [a/b_1], optype [Gelu].", "a/b_1", "Gelu"),
        ("No supported Ops kernel and engine are found for a/b_1, optype Gelu.", "a/b_1", "Gelu"),
        ("IR for Op x.y with optype Foo is not registered.", "x.y", "Foo"),
        ("No ONNX parser is registered for optype ai.onnx::13::Foo.", "", "ai.onnx::13::Foo"),
        ("Optype [TransData] of Ops kernel [k] is unsupported. Reason: groups.", "", "TransData"),
        ("Opname [ids] specified in [--input_shape] is not found in the model.", "ids", ""),
        ("Argument 1 for Op a with optype B is invalid. Reason: c.", "a", "B"),
        ("No plugin is registered for the operator gelu_7 of type ai.onnx::20::Gelu.", "gelu_7", "ai.onnx::20::Gelu"),
        ("Unknown error occurred.", "", ""),
    ],
)
def test_the_operator_is_read_from_either_wording(text: str, operator: str, kind: str) -> None:
    assert operator_of(Message(code="E13010", text=text)) == (operator, kind)


def test_all_operators_with_one_trouble_are_counted() -> None:
    found = explain(
        parse_output(
            "(E13010): No operator plugin is registered for Op: g0, optype: ai.onnx::20::Gelu.\n"
            "        TraceBack (most recent call last):\n"
            "        No operator plugin is registered for Op: g1, optype: ai.onnx::20::Gelu.\n"
            "        No operator plugin is registered for Op: g2, optype: ai.onnx::20::Gelu.\n\n"
        )
    )

    assert found is not None
    assert (found.operator, found.others) == ("g0", ("g1", "g2"))


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
