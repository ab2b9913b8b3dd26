"""Manifests with chosen facts, for tests of the files that are written from them."""

import dataclasses
from io import StringIO
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from tests.evaluations import evaluation
from tests.serve.making import ready_workers, show_workers
from workbench.bundle.manifest import Manifest, SourceModel, Tolerance
from workbench.serve.connections import Connections
from workbench.serve.metrics import Metrics, bundle_labels
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


def documents(text: str) -> list[Any]:
    return list(YAML(typ="safe").load_all(StringIO(text)))


def series_of_the_service() -> dict[str, set[str]]:
    """Name of each series the service can send → its labels."""
    made = manifest()
    metrics = Metrics(about=bundle_labels(made), lengths=(16,))
    metrics.received.inc()
    metrics.answered(200, 0.01)
    metrics.errors.labels("overloaded").inc()
    metrics.key_requests.labels("first").inc()
    metrics.depth.set(0)
    metrics.batch(length=16, rows=1, positions=16, padded=4, waited_s=[0.001], run_s=0.01, worker=0)
    metrics.registry.register(Connections(most=1, most_of_address=1))
    show_workers(metrics, ready_workers(1))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found
