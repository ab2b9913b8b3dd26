"""Cards sampled beside a load: by a tool of this machine, from a server's gauges, or not at all."""

from __future__ import annotations

import threading
import time

import pytest

from tests.load.kserve.servers import TRITON, over_http
from workbench.load import LoadPlan, run_load
from workbench.load.server import DeviceReaders, ServerWatch
from workbench.values.device_use import DeviceReading
from workbench.values.errors import ToolchainError
from workbench.values.service import ServiceLoad

BODY = (
    '{"inputs": [{"name": "input_ids", "datatype": "INT64", "shape": [1, 1], "data": [1]}, '
    '{"name": "attention_mask", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}'
)


def test_tritons_gauges_are_sampled_during_a_load() -> None:
    with over_http(metrics=TRITON) as url:
        port = int(url.rpartition(":")[2])
        plan = LoadPlan(
            url=url,
            path="/v2/models/sums/infer",
            wire="kserve-v2/json",
            metrics=("127.0.0.1", port),
            load=ServiceLoad(concurrency=1),
            duration_s=1.3,
            warmup_s=0.1,
        )
        result = run_load(plan, [BODY])

    (use,) = result.device
    assert use.card == "GPU-1"
    assert use.power_w is not None
    assert use.power_w.median == 212.5
    assert use.power_w.samples >= 1
    assert use.utilization_percent is not None
    assert use.utilization_percent.peak == pytest.approx(85)
    assert use.memory_bytes is not None
    assert use.memory_bytes.median == 1.5e9
    assert result.to_json()["device"][0]["power_w"]["median"] == 212.5


def test_a_server_without_such_gauges_is_asked_once() -> None:
    asked: list[int] = []
    watch = ServerWatch(lambda: asked.append(1) or {"process_cpu_seconds_total": {frozenset(): 1.0}})
    watch.begin()
    time.sleep(2.5)
    watch.end()

    assert watch.device == ()
    assert len(asked) == 3, "at the begin, at the end, and once for gauges"


def test_a_tool_that_fails_costs_figures_and_no_load() -> None:
    tried = threading.Event()

    def read() -> DeviceReading:
        tried.set()
        raise ToolchainError("the driver is not loaded")

    watch = ServerWatch(lambda: None, devices=DeviceReaders(readers={"0": read}, source="npu-smi"))
    watch.begin()
    assert tried.wait(90)

    watch.end()
    (use,) = watch.device
    assert use.power_w is None
    assert "the driver is not loaded" in use.trouble
