"""Manifests with chosen facts, for tests of the files that are written from them."""

import dataclasses

from tests.evaluations import evaluation
from workbench.bundle import Manifest, Tolerance
from workbench.bundle.manifest import SourceModel
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.artifact import Artifact, CompiledFile, Toolchain
from workbench.values.candidate import Candidate, Precision, Serving
from workbench.values.service import ServiceSettings

TARGETS = ("onnxruntime", "openvino", "ascend910b3")


def candidate(target: str, threads: int = 2) -> Candidate:
    serving = Serving(intra_op_threads=threads)
    if target == "ascend910b3":
        settings = AscendCompile(sequence_bins=(16, 32), batches=(1, 8))
        return Candidate(target=target, precision=Precision(mode="force_fp16"), compile=settings, serving=serving)
    if target == "openvino":
        return Candidate(target=target, compile=OpenVinoCompile(), serving=serving)
    return Candidate(target="onnxruntime", serving=serving)


def manifest(
    target: str = "onnxruntime",
    *,
    name: str = "loan-intent-small",
    emulated: bool = False,
    workers: int = 2,
    peak_memory_bytes: int | None = 50_000_000,
) -> Manifest:
    made = candidate(target)
    components = {"cann": "8.5.0", "driver": "25.2.0"} if target == "ascend910b3" else {}
    toolchain = Toolchain(target=target, components=components, device="Ascend910B3", emulated=emulated)
    found = evaluation()
    measured = dataclasses.replace(found.measurement, peak_memory_bytes=peak_memory_bytes)
    file = CompiledFile(batch=None, sequence_bin=None, file="model.onnx", sha256="0" * 64, size_bytes=30_000_000)
    return Manifest(
        name=name,
        about="",
        task="classification",
        created_at="2026-11-21T18:00:00+00:00",
        workbench="0.1.0",
        integrity="",
        candidate_id=made.id,
        candidate=made,
        artifact=Artifact(
            target=target, files=(file,), toolchain=toolchain, int8_ops=0, float_matmuls_left=1, kernels={}
        ),
        evaluations=(dataclasses.replace(found, candidate=made, measurement=measured, toolchain=toolchain),),
        baseline=(),
        model=SourceModel(file="m.onnx", sha256="1" * 64, size_bytes=1, opset=17, inputs=(), outputs=()),
        datasets={},
        labels=(),
        text=None,
        record=None,
        golden="golden/samples.npz",
        golden_texts=None,
        golden_batches=1,
        tolerance=Tolerance(absolute=0.0, relative=0.0),
        files={},
        service=ServiceSettings(max_batch_size=8, batch_timeout_ms=2.0, workers=workers),
    )
