"""Small servers of the open inference protocol: one here, and MLServer as a program.

Both serve the same model: `logits` [rows, 2], the sum of the ids that the mask lets through, and their count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.load.servers import Server, answer, free_ports, program, serving
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


def _infer(asked: bytes, head_bytes: int | None) -> bytes:
    """A whole HTTP answer to a request's body, in the form in which it was asked."""
    at, arrays = len(asked) if head_bytes is None else head_bytes, {}
    head = json.loads(asked[:at])
    for entry in head["inputs"]:
        kind = np.dtype(NUMPY[entry["datatype"]])
        if "data" in entry:
            arrays[entry["name"]] = np.array(entry["data"], dtype=kind).reshape(entry["shape"])
        else:
            size = entry["parameters"]["binary_data_size"]
            arrays[entry["name"]] = np.frombuffer(asked[at : at + size], dtype=kind).reshape(entry["shape"])
            at += size
    if set(arrays) != {"input_ids", "attention_mask"}:
        return answer("400 Bad Request", b'{"error": "expected two inputs"}')
    logits = sums(arrays["input_ids"], arrays["attention_mask"])
    entry = {"name": "logits", "datatype": "FP32", "shape": list(logits.shape)}
    if not head.get("parameters", {}).get("binary_data_output"):
        return answer(body=json.dumps({"outputs": [{**entry, "data": logits.ravel().tolist()}]}).encode())
    entry["parameters"] = {"binary_data_size": logits.nbytes}
    said = json.dumps({"outputs": [entry]}).encode()
    return answer(body=said + logits.tobytes(), headers=f"Inference-Header-Content-Length: {len(said)}\r\n")


async def _handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
    head = server.heads[-1]
    if head.startswith(b"POST /v2/repository/index "):
        writer.write(answer(body=b'[{"name": "sums", "state": "READY"}]'))
    else:
        length = re.search(rb"Inference-Header-Content-Length: (\d+)", head)
        writer.write(_infer(body, None if length is None else int(length[1])))
    return True


@contextlib.contextmanager
def over_http(*, binary: bool = True, metrics: bytes = b"") -> Iterator[str]:
    """The URL of a server, with the extension for binary tensors or without."""
    extensions = ["binary_tensor_data"] if binary else []
    pages = {
        "/v2": json.dumps({"name": "small", "version": "1", "extensions": extensions}).encode(),
        **dict.fromkeys(("/v2/models/sums", "/v2/models/sums/versions/3"), json.dumps(MODEL).encode()),
        **({"/metrics": metrics} if metrics else {}),
    }
    with serving(_handle, pages) as server:
        yield server.url


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
def mlserver(folder: Path) -> Iterator[str]:
    """The URL of MLServer serving the model `sums`; skips where it is not installed."""
    if not MLSERVER.is_file():
        pytest.skip(f"{MLSERVER} is missing: `make mlserver` installs MLServer in an environment of its own")
    ports = dict(zip(("http_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    (folder / "sums_runtime.py").write_text(_RUNTIME, encoding="utf-8")
    settings = {"host": "127.0.0.1", "parallel_workers": 0, **ports}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    model = {**MODEL, "implementation": "sums_runtime.Sums"}
    del model["platform"]
    (folder / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
    url = f"http://127.0.0.1:{ports['http_port']}"
    with program([str(MLSERVER), "start", str(folder)], f"{url}/v2/models/sums/ready", folder / "mlserver.log"):
        yield url


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
