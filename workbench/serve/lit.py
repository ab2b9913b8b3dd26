"""All of LitServe that is used beyond its documented interface, in one place; written against 0.2.19.

LitServe gives the FastAPI application, the worker's bootstrap (`LitAPI.setup`, then the `LitLoop`) and its launch in a
fresh interpreter. Its `run` is not used:

- A message there and back goes through a manager process, which takes several times the processor's time of a socket
  pair. `fast_queue=True` changes nothing, because `TransportConfig` ignores the argument it is given.
- SIGTERM ends the main process alone; its children keep the port. In-flight requests are cut off.
- A worker that died is noticed after two seconds; who waits for its answer waits on.

So there is no manager, and no queue: each worker gets one end of a socket pair, which tells at once when it dies.
"""

from __future__ import annotations

import multiprocessing.process
import socket
from collections.abc import Sequence

from fastapi import FastAPI
from litserve import LitServer  # type: ignore[import-untyped]  # LitServe ships no types

from workbench.bundle import Bundle
from workbench.bundle.fingerprint import Policy
from workbench.serve.cards import Place
from workbench.serve.worker import BundleWorker
from workbench.values.system.environment import variables_set


class WorkerLauncher:
    """Starts worker processes of one bundle, by LitServe."""

    def __init__(
        self, bundle: Bundle, *, workers: int, places: Sequence[Place], max_batch_size: int, policy: Policy
    ) -> None:
        """`workers` are all of them, at all places together; worker n computes at place n modulo their number."""
        self._places = tuple(places)
        self._api = BundleWorker(
            bundle.directory,
            manifest_sha256=bundle.manifest_sha256,
            max_batch_size=max_batch_size,
            policy=policy,
            devices=[place.device for place in places],
        )
        # 'auto' would run nvidia-smi and import torch; 'cpu' only names the device that setup() is told
        self._server = LitServer(self._api, accelerator="cpu", devices=1, workers_per_device=workers, timeout=False)
        self._server.workers_setup_status = {}
        self._server.litapi_request_queues = {self._api.api_path: None}
        self._server._transport = None

    @property
    def app(self) -> FastAPI:
        """LitServe's application without its routes and middleware; the front end brings its own."""
        app: FastAPI = self._server.app
        app.router.routes.clear()
        app.user_middleware.clear()
        return app

    def launch(self, number: int) -> tuple[multiprocessing.process.BaseProcess, socket.socket]:
        """Start worker `number`; returns its process and our end of its socket.

        Call it from the main thread: a worker dies with the thread that started it.

        Raises:
            OSError: no file, process or memory is left for it.
        """
        ours, theirs = socket.socketpair()
        self._api.connection = theirs
        try:
            with variables_set(self._places[number % len(self._places)].environment):
                process: multiprocessing.process.BaseProcess = self._server.launch_single_inference_worker(
                    self._api, number
                )
        except BaseException:
            ours.close()
            raise
        finally:
            self._api.connection = None
            theirs.close()
        return process, ours
