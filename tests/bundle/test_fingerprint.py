"""What a machine may change under a bundle: graded, in words, and by policy."""

from dataclasses import replace

import pytest

from workbench.bundle.fingerprint import admit, compare
from workbench.values.artifact import Toolchain
from workbench.values.errors import BundleError

CPU = Toolchain(
    target="onnxruntime",
    components={"numpy": "2.4.6", "onnx": "1.23.2", "onnxruntime": "1.31.1", "platform": "Linux x86_64"},
    device="a Xeon",
    features=("2 cores", "avx2", "avx512_vnni"),
)
NPU = Toolchain(
    target="ascend910b3",
    components={
        "amct_onnx": "8.5.0",
        "cann": "8.5.0",
        "cann build": "8.5.0.2.220",
        "driver": "25.2.0",
        "platform": "Linux aarch64",
    },
    device="Ascend910B3",
    features=("20 AI cores", "65536 MB HBM", "kernels ascend910b"),
)


def with_component(toolchain: Toolchain, name: str, version: str | None) -> Toolchain:
    kept = {n: v for n, v in toolchain.components.items() if n != name}
    return replace(toolchain, components=kept if version is None else kept | {name: version})


def test_each_fact_has_its_severity() -> None:
    for here, severity, words in (
        (replace(CPU, target="openvino"), "refuse", "it is for onnxruntime, this is openvino"),
        (replace(CPU, emulated=True), "refuse", "this toolchain is an emulator"),
        (with_component(CPU, "platform", "Linux aarch64"), "refuse", "platform is Linux aarch64 here"),
        (with_component(CPU, "onnxruntime", "1.32.0"), "refuse", "onnxruntime is 1.32.0 here, it was made with 1.31.1"),
        (with_component(CPU, "onnxruntime", "1.31.2"), "warn", "onnxruntime is 1.31.2 here"),
        (with_component(CPU, "onnxruntime", None), "refuse", "onnxruntime is nothing here"),
        (with_component(CPU, "onnx", "1.24.0"), "note", "onnx is 1.24.0 here"),
        (with_component(CPU, "cuda", "13"), "warn", "cuda is 13 here, it was made with nothing"),
        (replace(CPU, device="an EPYC"), "warn", "an EPYC; its figures are from a Xeon: measure again"),
        (replace(CPU, features=("2 cores", "avx2")), "refuse", "lacks avx512_vnni"),
        (replace(CPU, features=("avx2", "avx512_vnni", "8 cores")), "warn", "2 cores then; 8 cores here"),
        (replace(CPU, features=(*CPU.features, "amx_int8")), "warn", "amx_int8 here"),
        (replace(NPU, device="Ascend910B4"), "refuse", "this is Ascend910B4"),
        (with_component(NPU, "cann", "8.6.0"), "refuse", "cann is 8.6.0 here"),
        (with_component(NPU, "cann", "8.5.1"), "warn", "cann is 8.5.1 here"),
        (with_component(NPU, "cann", "8.5.0.alpha002"), "refuse", "cann is 8.5.0.alpha002 here"),
        (with_component(NPU, "driver", "25.3.rc1"), "warn", "driver is 25.3.rc1 here"),
        (with_component(NPU, "driver", "24.1.0"), "refuse", "driver is 24.1.0 here"),
        (with_component(NPU, "amct_onnx", "none"), "note", "amct_onnx is none here"),
        (replace(NPU, features=("20 AI cores", "32768 MB HBM")), "warn", "32768 MB HBM here"),
    ):
        (difference,) = compare(CPU if here.target != "ascend910b3" else NPU, here)

        assert difference.severity == severity
        assert words in difference.words


def test_the_policy_decides_what_may_be_served_and_the_machine_it_was_made_on_differs_in_nothing() -> None:
    here = with_component(with_component(replace(CPU, device="other"), "onnx", "1"), "onnxruntime", "2.0.0")

    with pytest.raises(BundleError, match=r"onnxruntime is 2\.0\.0 here.*--policy warn"):
        admit(CPU, here, "refuse")
    said = admit(CPU, here, "warn")

    assert len(said) == 2
    assert not any("onnx is" in words for words in said)
    assert admit(CPU, replace(CPU, device="other"), "refuse")[0].startswith("this is other")
    for toolchain in (CPU, NPU):
        assert compare(toolchain, toolchain) == ()
        assert admit(toolchain, toolchain, "refuse") == ()
