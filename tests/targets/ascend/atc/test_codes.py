import pytest

from tests.reference_pages import atc_codes
from workbench.targets.ascend.atc.codes import Message, explain, meaning_of, operator_of, parse_output, table


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
