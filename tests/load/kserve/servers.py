"""Small servers of the open inference protocol: one over HTTP and one over gRPC here, and MLServer as a program.

All of them serve the same model: `logits` [rows, 2], the sum of the ids that the mask lets through, and their count.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.load.kserve.grpc_calls import message
from workbench.load.kserve.served import NUMPY, ServedModel, ServedTensor
from workbench.values.preprocess import Array

MODEL = {
    "name": "sums",
    "platform": "numpy",
    "inputs": [
        {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]},
        {"name": "attention_mask", "datatype": "INT32", "shape": [-1, -1]},
    ],
    "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 2]}],
}
MLSERVER = Path(os.environ.get("WORKBENCH_MLSERVER") or Path(__file__).parents[3] / ".venv-mlserver/bin/mlserver")


def sums(ids: Array, mask: Array) -> Array:
    found: Array = np.stack([(ids * mask).sum(axis=1), mask.sum(axis=1)], axis=1).astype(np.float32)
    return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    extensions: tuple[str, ...] = ("binary_tensor_data",)
    metrics = b""

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        if self.path == "/metrics" and self.metrics:
            self._send(200, self.metrics, {})
        elif self.path == "/v2":
            self._json(200, {"name": "small", "version": "1", "extensions": list(self.extensions)})
        elif self.path in ("/v2/models/sums", "/v2/models/sums/versions/3"):
            self._json(200, MODEL)
        else:
            self._json(404, {"error": f"nothing at {self.path}"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v2/repository/index":
            self._json(200, [{"name": "sums", "state": "READY"}])
            return
        length = self.headers.get("Inference-Header-Content-Length")
        head = json.loads(body if length is None else body[: int(length)])
        at, arrays = len(body) if length is None else int(length), {}
        for entry in head["inputs"]:
            kind = np.dtype(NUMPY[entry["datatype"]])
            if "data" in entry:
                arrays[entry["name"]] = np.array(entry["data"], dtype=kind).reshape(entry["shape"])
            else:
                size = entry["parameters"]["binary_data_size"]
                arrays[entry["name"]] = np.frombuffer(body[at : at + size], dtype=kind).reshape(entry["shape"])
                at += size
        if set(arrays) != {"input_ids", "attention_mask"}:
            self._json(400, {"error": "expected two inputs"})
            return
        logits = sums(arrays["input_ids"], arrays["attention_mask"])
        entry = {"name": "logits", "datatype": "FP32", "shape": list(logits.shape)}
        if head.get("parameters", {}).get("binary_data_output"):
            entry["parameters"] = {"binary_data_size": logits.nbytes}
            answer = json.dumps({"model_name": "sums", "outputs": [entry]}).encode()
            self._send(200, answer + logits.tobytes(), {"Inference-Header-Content-Length": str(len(answer))})
        else:
            self._json(200, {"model_name": "sums", "outputs": [{**entry, "data": logits.ravel().tolist()}]})

    def _json(self, status: int, body: object) -> None:
        self._send(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def over_http(*, binary: bool = True, metrics: bytes = b"") -> Iterator[str]:
    """The URL of a server over HTTP, with the extension for binary tensors or without."""
    members = {"extensions": ("binary_tensor_data",) if binary else (), "metrics": metrics}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), members))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


@contextlib.contextmanager
def over_grpc(*, raw: bool = True, asked: threading.Event | None = None) -> Iterator[str]:
    """The URL of a server over gRPC that answers with raw contents, as Triton does, or typed ones, as MLServer does;
    `asked` is set by the third request: of two clients one has its answer then."""
    grpc = pytest.importorskip("grpc", reason="gRPC takes the extra kserve")

    requests = itertools.count(1)

    def server_metadata(_: bytes, __: Any) -> bytes:
        return bytes(message("ServerMetadataResponse")(name="small", version="1").SerializeToString())

    def metadata(content: bytes, context: Any) -> bytes:
        name = message("ModelMetadataRequest").FromString(content).name
        if name != "sums":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no model {name}")
        found = message("ModelMetadataResponse")(name="sums", platform="numpy")
        for kind in ("inputs", "outputs"):
            for entry in MODEL[kind]:
                getattr(found, kind).add(**entry)  # type: ignore[arg-type]  # fields of a message
        return bytes(found.SerializeToString())

    def infer(content: bytes, context: Any) -> bytes:
        if asked is not None and next(requests) == 3:
            asked.set()
        question = message("ModelInferRequest").FromString(content)
        arrays = {
            entry.name: np.frombuffer(part, dtype=NUMPY[entry.datatype]).reshape(entry.shape)
            for entry, part in zip(question.inputs, question.raw_input_contents, strict=True)
        }
        if set(arrays) != {"input_ids", "attention_mask"}:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected two inputs")
        logits = sums(arrays["input_ids"], arrays["attention_mask"])
        answer = message("ModelInferResponse")(model_name="sums")
        output = answer.outputs.add(name="logits", datatype="FP32", shape=list(logits.shape))
        if raw:
            answer.raw_output_contents.append(logits.tobytes())
        else:
            output.contents.fp32_contents.extend(logits.ravel().tolist())
        return bytes(answer.SerializeToString())

    calls = {"ServerMetadata": server_metadata, "ModelMetadata": metadata, "ModelInfer": infer}
    handlers = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),))
    bound = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{bound}"
    finally:
        server.stop(None).wait(60)


_RUNTIME = """
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

class Sums(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        arrays = {i.name: NumpyCodec.decode_input(i) for i in payload.inputs}
        ids, mask = arrays["input_ids"], arrays["attention_mask"]
        logits = np.stack([(ids * mask).sum(axis=1), mask.sum(axis=1)], axis=1).astype(np.float32)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("logits", logits)])
"""


@contextlib.contextmanager
def mlserver(folder: Path) -> Iterator[tuple[str, str]]:
    """(http URL, grpc URL) of MLServer serving the model `sums`; skips where it is not installed."""
    if not MLSERVER.is_file():
        pytest.skip(f"{MLSERVER} is missing: `make mlserver` installs MLServer in an environment of its own")
    ports = _free_ports(3)
    (folder / "sums_runtime.py").write_text(_RUNTIME, encoding="utf-8")
    names = ("http_port", "grpc_port", "metrics_port")
    settings = {"host": "127.0.0.1", "parallel_workers": 0, **dict(zip(names, ports, strict=True))}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    model = {
        "name": "sums",
        "implementation": "sums_runtime.Sums",
        "inputs": MODEL["inputs"],
        "outputs": MODEL["outputs"],
    }
    (folder / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
    log = folder / "mlserver.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [str(MLSERVER), "start", str(folder)], cwd=folder, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        _wait(f"http://127.0.0.1:{ports[0]}/v2/models/sums/ready", process, log)
        yield f"http://127.0.0.1:{ports[0]}", f"grpc://127.0.0.1:{ports[1]}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=30):
            return
        time.sleep(0.2)  # a program of its own tells nobody when it is ready
    pytest.fail(f"MLServer did not start:\n{log.read_text(encoding='utf-8', errors='replace')[-2000:]}")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


IDS = np.array([[101, 7, 8, 102], [101, 9, 102, 0]], dtype=np.int64)


MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], dtype=np.int64)


def served(*inputs: tuple[str, str, tuple[int, ...]]) -> ServedModel:
    tensors = tuple(ServedTensor(name=name, datatype=kind, shape=shape) for name, kind, shape in inputs)
    return ServedModel(url="", name="bert", version="3", platform="", inputs=tensors, outputs=())


BERT = served(("input_ids", "INT64", (-1, -1)), ("attention_mask", "INT32", (-1, -1)))


TRITON = b"""# HELP nv_gpu_power_usage GPU power usage in watts
nv_gpu_power_usage{gpu_uuid="GPU-1"} 212.5
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.85
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1.5e+09
"""
