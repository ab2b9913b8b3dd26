"""Bundles of tiny models, and a real service over one of them in a process of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from onnx import TensorProto, helper

from tests.bundle.making import contents_of
from tests.small_graphs import write_graph
from tests.word_pieces import write_tokenizer
from workbench.bundle.signing import SecretKey
from workbench.serve.metrics import Metrics
from workbench.serve.pool import Pool
from workbench.serve.workers import Worker, WorkerMetrics
from workbench.shipping.handover import hand_over
from workbench.values.candidate import Candidate
from workbench.values.preprocess import TokenInput, collate, encode, open_preprocessor
from workbench.values.service import ServiceSettings

WORDS = ("[PAD]", "[UNK]", "anna", "bell", "##y", "paris", "paid", "in", "new", "york", "loan", "due", "张", "三")
LABELS = ("yes", "no", "later")
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TAG_OF = {"anna": 1, "bell": 2, "##y": 3, "paris": 3, "new": 3, "york": 4, "张": 1, "三": 2}
"""'##y' alone would begin a place: only the first token of a word may count."""
SERVICE = ServiceSettings(max_batch_size=8, batch_timeout_ms=2.0, workers=1)
BINS = (4, 8, 16)


def write_model(path: Path, task: str, slow: int = 0) -> None:
    """input_ids, attention_mask [batch, length] → logits: [batch, 3] of the unmasked mean, or [batch, length, tags].

    Args:
        slow: products of two 1500 × 1500 matrices on the way, about 0.1 s each on one quiet core.
    """
    rng = np.random.default_rng(0)
    table = rng.normal(size=(len(WORDS), len(LABELS))).astype(np.float32)
    if task == "ner":
        table = np.zeros((len(WORDS), len(TAGS)), np.float32)
        for number, word in enumerate(WORDS):
            table[number, TAG_OF.get(word, 0)] = 4.0
    weights = {"table": table, "axes": np.array([1]), "last": np.array([2])}
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["e"], name="embed")]
    mask = [
        helper.make_node("Cast", ["attention_mask"], ["m0"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m0", "last"], ["m1"], name="widen"),
        helper.make_node("Mul", ["e", "m1"], ["masked"], name="mask"),
    ]
    shape: list[str | int] = ["batch", "length", len(TAGS)]
    last = "masked"
    nodes += mask
    if task == "classification":
        nodes += [
            helper.make_node("ReduceSum", ["masked", "axes"], ["sum"], name="sum", keepdims=0),
            helper.make_node("ReduceSum", ["m1", "axes"], ["count"], name="count", keepdims=0),
            helper.make_node("Div", ["sum", "count"], ["mean"], name="mean"),
        ]
        shape, last = ["batch", len(LABELS)], "mean"
    if slow:
        weights["big"] = np.full((1500, 1500), 1e-3, np.float32)
        nodes.append(helper.make_node("ReduceMax", [last], ["top"], name="top", keepdims=0))
        nodes.append(helper.make_node("Mul", ["big", "top"], ["b0"], name="b0"))
        for step in range(slow):
            nodes.append(helper.make_node("MatMul", [f"b{step}", "big"], [f"p{step}"], name=f"p{step}"))
            nodes.append(helper.make_node("Tanh", [f"p{step}"], [f"b{step + 1}"], name=f"b{step + 1}"))
        nodes.append(helper.make_node("ReduceMin", [f"b{slow}"], ["low"], name="low", keepdims=0))
        weights["nothing"] = np.array(0, np.float32)
        nodes.append(helper.make_node("Mul", ["low", "nothing"], ["zero"], name="zero"))
        nodes.append(helper.make_node("Add", [last, "zero"], ["logits"], name="out"))
    else:
        nodes.append(helper.make_node("Identity", [last], ["logits"], name="out"))
    fed = dict.fromkeys(("input_ids", "attention_mask"), (TensorProto.INT64, ["batch", "length"]))
    write_graph(path, nodes, fed, {"logits": shape}, **weights)


def make_bundle(
    root: Path,
    task: str = "classification",
    *,
    slow: int = 0,
    spoilt: bool = False,
    service: ServiceSettings | None = None,
    candidate: Candidate | None = None,
    secret: SecretKey | None = None,
) -> Path:
    """A float bundle below `root`.

    Args:
        spoilt: its golden outputs are not what the model gives.
    """
    write_model(root / "model.onnx", task, slow)
    write_tokenizer(root / "tokenizer.json", WORDS)
    inputs = [TokenInput(name="input_ids", role="ids"), TokenInput(name="attention_mask", role="mask")]
    preprocessor = open_preprocessor(root / "tokenizer.json", max_length=16, bins=BINS, inputs=inputs)
    texts = ("anna paid", "loan due in paris")
    return bundle_of(
        root,
        candidate or Candidate(target="onnxruntime"),
        collate(preprocessor, encode(preprocessor, texts)),
        texts=texts,
        spoilt=spoilt,
        secret=secret,
        name=f"tiny-{task}",
        task=task,
        labels=LABELS if task == "classification" else TAGS,
        preprocessor=preprocessor,
        service=service or SERVICE,
    )


def bundle_of(
    root: Path,
    candidate: Candidate,
    feeds: Mapping[str, Any],
    *,
    texts: tuple[str, ...] = (),
    secret: SecretKey | None = None,
    **contents: Any,
) -> Path:
    """A bundle of `model.onnx` in a folder, whose golden samples are what the model gives for these feeds."""
    whole = contents_of(root, candidate, [(texts, feeds)], **contents)
    return hand_over(root / "bundle", whole, secret=secret, allow_emulated=whole.artifact.toolchain.emulated)


def ready_workers(*device_bytes: int | None) -> list[Worker]:
    """Workers as Prometheus is told of them, each with so much memory on its card; their process is this one."""
    here = multiprocessing.current_process()
    told = [{"device_bytes": size} for size in device_bytes]
    return [Worker(number, "ready", here, facts=facts) for number, facts in enumerate(told)]


def show_workers(metrics: Metrics, workers: list[Worker]) -> None:
    metrics.registry.register(WorkerMetrics(Pool(workers, 60.0, 600.0, lambda _: None)))


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    body: Any


@dataclass
class Running:
    """A service process and where it listens."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    log: Path

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=300)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return Reply(response.status, dict(response.headers), json.loads(text) if is_json else text)

    def predict(self, body: object, **headers: str) -> Reply:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", "/predict", content, **{"Content-Type": "application/json", **headers})

    def health(self) -> Reply:
        return self.request("GET", "/health")

    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def worker_pids(self) -> dict[int, int]:
        """The process of each worker that is ready now or was."""
        return {e["worker"]: e["pid"] for e in self.events() if e["event"] == "worker_ready"}

    def family(self) -> list[psutil.Process]:
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]

    def wait_until(self, what: Any, seconds: float = 300) -> None:
        until = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.02)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(300)


def launch(bundle: Path, log: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "workbench.serve", str(bundle), "--port", "0", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, **environment},
            start_new_session=True,
        )


@contextlib.contextmanager
def running(bundle: Path, *arguments: str, ready: bool = True, **environment: str) -> Iterator[Running]:
    """A service over `bundle`, ready to answer; whatever is left of it is killed at the end."""
    log = bundle.parent / f"service-{time.monotonic_ns()}.log"
    process = launch(bundle, log, *arguments, **environment)
    service = Running(process, "", 0, log)
    try:
        service.wait_until(
            lambda: any(e["event"] == "listening" for e in service.events()) or process.poll() is not None
        )
        assert process.poll() is None, log.read_text()
        url = next(e["url"] for e in service.events() if e["event"] == "listening")
        service.host, _, port = url.removeprefix("http://").rpartition(":")
        service.port = int(port)
        if ready:
            service.wait_until(lambda: service.health().status == 200)
        yield service
    finally:
        if process.poll() is None:
            for one in reversed(service.family()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait(300)


def gone(processes: list[psutil.Process], seconds: float = 300) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def metric(service: Running, name: str) -> float:
    """0 for an error that has not happened yet."""
    series, brace, labels = name.partition("{")
    found = samples(service, series)
    assert brace + labels in found or series == "workbench_errors_total"
    return found.get(brace + labels, 0.0)


@contextlib.contextmanager
def standing(service: Running) -> Iterator[None]:
    """No worker computes, so that what waits does so however slow this machine is."""
    pids = service.worker_pids().values()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def asked(
    service: Running, pool: concurrent.futures.ThreadPoolExecutor, count: int
) -> list[concurrent.futures.Future[Reply]]:
    """`count` requests that have arrived and are not answered yet."""
    before = metric(service, "workbench_requests_received_total")
    futures = [pool.submit(service.predict, {"text": "anna"}) for _ in range(count)]
    service.wait_until(lambda: metric(service, "workbench_requests_received_total") >= before + count)
    return futures


def samples(service: Running, name: str) -> dict[str, float]:
    """Labels as written → value, of one metric."""
    text = service.request("GET", "/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return {line.removeprefix(name).rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
