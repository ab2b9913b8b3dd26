"""Load generator: real requests at a service, and what their clients see. Predicted figures live in `prediction`.

    plan = LoadPlan(url="http://127.0.0.1:8000", load=ServiceLoad(concurrency=100), duration_s=30)
    result = run_load(plan, bodies_of_texts(texts))

Clients of our own, in a process of their own: general HTTP libraries report their own queueing as the server's latency
(httpx twenty times over at 100 connections), and on shared cores they take throughput away from the server.
"""

from workbench.load.plan import LoadPlan, arrival_times
from workbench.load.requests import Request, bodies_of_bundle, bodies_of_dataset, bodies_of_file, bodies_of_texts
from workbench.load.result import LoadResult, ServerFigures, ServerProcesses, read_result
from workbench.load.run import run_load

__all__ = [
    "LoadPlan",
    "LoadResult",
    "Request",
    "ServerFigures",
    "ServerProcesses",
    "arrival_times",
    "bodies_of_bundle",
    "bodies_of_dataset",
    "bodies_of_file",
    "bodies_of_texts",
    "read_result",
    "run_load",
]
