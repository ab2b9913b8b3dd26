"""A cluster of Ray on this machine in a process of its own: `python -m tests.standin.nodes`, and who talks to it.

with nodes(environment) as cluster:
    cluster.add(cards=2, processors=4)
    cluster.kill_actor() ...
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
TOKEN = "5ca1ab1e" * 8
AUTH = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}
_STORE_BYTES = 80 << 20
_FEW = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0"}
"""No worker for every processor beforehand: each takes seconds to import Ray, and few are ever used."""


class Nodes:
    """Attributes:
    address: of the head.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        told = self._told()
        self.address, self._gcs = str(told["address"]), int(told["gcs"])
        self._raylets: list[int] = []

    def add(self, *, cards: int, processors: int) -> bool:
        """Have a node join; False where Ray could not start it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{cards} {processors}\n")
        self._process.stdin.flush()
        raylet = int(self._told()["raylet"])
        self._raylets += [raylet] if raylet else []
        return bool(raylet)

    @property
    def count(self) -> int:
        """Nodes that were added and not killed."""
        return len(self._raylets)

    def actors(self) -> list[psutil.Process]:
        """Processes that hold a card."""
        found = []
        for one in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if one.status() != psutil.STATUS_ZOMBIE and any("CardHost" in part for part in one.cmdline()[:1]):
                    found.append(one)
        return found

    def kill_actor(self, rng: random.Random) -> bool:
        """kill -9; False where there is none just now."""
        actors = self.actors()
        if actors:
            os.kill(rng.choice(actors).pid, signal.SIGKILL)
        return bool(actors)

    def kill_raylet(self, rng: random.Random) -> None:
        """kill -9 of a node's raylet, whose object store is a thread of it."""
        os.kill(self._raylets.pop(rng.randrange(len(self._raylets))), signal.SIGKILL)

    def kill_head(self) -> None:
        os.kill(self._gcs, signal.SIGKILL)

    def _told(self) -> dict[str, object]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                told: dict[str, object] = json.loads(line)
                return told
        raise RuntimeError("the cluster did not start")


@contextlib.contextmanager
def nodes(environment: Mapping[str, str]) -> Iterator[Nodes]:
    """A head without cards or processors for anybody; nodes are added. Ended with the block, by their ids."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.standin.nodes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env={**os.environ, **AUTH, **_FEW, "RAY_raylet_start_wait_time_s": "120", **environment},
        )
        everybody: dict[int, psutil.Process] = {}
        try:
            try:
                found = Nodes(process)
            except RuntimeError:
                log.seek(0)
                raise RuntimeError(log.read()[-3000:]) from None
            yield found
        finally:
            with contextlib.suppress(psutil.Error):
                everybody = {p.pid: p for p in psutil.Process(process.pid).children(recursive=True)}
            process.kill()
            for one in everybody.values():
                with contextlib.suppress(psutil.Error):
                    one.kill()
            process.communicate()
            psutil.wait_procs(list(everybody.values()), timeout=10)


def main() -> None:
    from ray.cluster_utils import Cluster

    from tests.standin import RESOURCE

    shared = {"include_dashboard": False, "include_log_monitor": False, "object_store_memory": _STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **shared})
    gcs = cluster.head_node.all_processes["gcs_server"][0].process.pid
    print(json.dumps({"address": cluster.address, "gcs": gcs}), flush=True)
    for line in sys.stdin:
        cards, processors = map(int, line.split())
        try:
            node = cluster.add_node(num_cpus=processors, resources={RESOURCE: cards} if cards else {}, **shared)
            raylet = node.all_processes["raylet"][0].process.pid
        except Exception as error:  # on a machine that is very busy, Ray gives a node up that does not start in time
            print(error, file=sys.stderr)
            raylet = 0
        print(json.dumps({"raylet": raylet}), flush=True)


if __name__ == "__main__":
    main()
