"""What the terminal and the pages say about layers."""

import io
from dataclasses import replace

from rich.console import Console

from workbench.report.layers import comparison_html, comparison_text, comparison_verdict, shown_rows, signed_percent
from workbench.study.compared import Comparison, Limits, TensorComparison
from workbench.study.comparison import WORST

GOOD = TensorComparison(
    tensor="/encoder/layer.0/dense/Add_output_0",
    node="/encoder/layer.0/dense/Add",
    op_type="Add",
    is_output=False,
    elements=100,
    not_finite=0,
    cosine=0.99999,
    max_abs=1e-4,
    mae=1e-5,
    sqnr_db=60.0,
    relative_error=1e-3,
    added_error=1e-3,
    jump=False,
    rescaled=False,
    within_limits=True,
)
JUMP = replace(
    GOOD, tensor="jumping", jump=True, relative_error=0.3, added_error=0.29, within_limits=False, sqnr_db=10.5
)
OUTPUT = replace(GOOD, tensor="logits", node="classifier", op_type="Gemm", is_output=True, within_limits=False)


def found(*rows: TensorComparison) -> Comparison:
    return Comparison(
        a="a.onnx in onnxruntime", b="b.onnx in deploy", data="x", batches=1, limits=Limits(), rows=rows, only_in_a=0
    )


def printed(comparison: Comparison, *, width: int = 120, every: bool = False) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(comparison_text(comparison, every=every))
    return stream.getvalue()


def test_the_verdict_names_the_jump_and_the_first_tensor_beyond_the_limits() -> None:
    assert comparison_verdict(found(GOOD, JUMP, OUTPUT)) == (
        "The error first jumps at jumping (Add /encoder/layer.0/dense/Add): 29.00% of the signal is added there.",
        "The outputs are NOT within the limits (cosine > 0.999, max abs < 0.001, MAE < 0.0001).",
        "The first tensor beyond them: jumping (Add /encoder/layer.0/dense/Add).",
    )
    passed = replace(OUTPUT, within_limits=True)
    sentences = comparison_verdict(found(GOOD, replace(JUMP, within_limits=True), passed))
    assert sentences[0].startswith("More than rounding first comes in at jumping (Add /encoder/layer.0/dense/Add): 29")
    assert sentences[1].startswith("The outputs are within the limits")
    assert "Nowhere does the error jump" in comparison_verdict(found(GOOD, passed))[0]
    text = printed(
        found(replace(GOOD, rescaled=True, relative_error=0.9, added_error=0.0, within_limits=False), passed)
    )
    assert "1 tensor rescaled: balancing moved" in " ".join(text.split())
    assert "The outputs are within the limits" in text
    assert "beyond" not in text


def test_nan_is_said_before_anything_else() -> None:
    broken = replace(JUMP, tensor="broken", not_finite=7, relative_error=WORST, added_error=WORST)

    assert comparison_verdict(found(GOOD, broken, OUTPUT))[0].startswith("The first NaN or infinity: broken")
    assert "7 NaN/inf" in printed(found(GOOD, broken, OUTPUT))
    assert "7 NaN/inf" in comparison_html(found(GOOD, broken, OUTPUT))


def test_equal_models_show_their_outputs_only_unless_all_are_asked_for() -> None:
    rows = [replace(row, sqnr_db=None, relative_error=0.0, added_error=0.0, jump=False) for row in (GOOD, JUMP, OUTPUT)]
    equal = found(*rows)

    assert shown_rows(equal) == [rows[2]]
    assert "All compared tensors are equal." in printed(equal)
    assert "jumping" not in printed(equal)
    assert "jumping" in printed(equal, every=True)


def test_names_of_tensors_are_never_cut_and_escaped_on_the_page() -> None:
    long = replace(GOOD, tensor="/encoder/" + "very_long_name/" * 12 + "Add_output_0")
    for width in (80, 120, 200):
        text = printed(found(long, OUTPUT), width=width)
        letters = "".join(line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│"))
        assert long.tensor in letters
        assert "…" not in text
    assert "<script>alert" not in comparison_html(found(replace(GOOD, tensor="<script>alert(1)</script>"), OUTPUT))


def test_what_rounds_to_nothing_has_no_sign() -> None:
    assert [signed_percent(share) for share in (0.031, -0.0004, 0.0, -0.02)] == ["+3.1%", "0.0%", "0.0%", "-2.0%"]
