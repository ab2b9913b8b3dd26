from workbench.targets.int8_layer import run_int8_layer
from workbench.targets.onnxruntime.target import INT8, onnxruntime_findings


def test_a_layer_really_runs_in_an_integer_kernel() -> None:
    kernels, seconds = run_int8_layer(INT8)

    assert kernels == 1
    assert seconds > 0


def test_the_finding_names_the_version() -> None:
    (finding,) = onnxruntime_findings()

    assert finding.value.startswith("yes: 1.")
