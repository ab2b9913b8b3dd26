"""The driver's connection to a cluster, and a watch that notices when its head is gone.

Ray itself waits for a lost head for minutes and then ends the process: the watch is quicker, and what waits for a card
asks it. Calls of the head may hang then, so they are made in threads that nobody waits for.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from workbench.search.executors.ray.settings import ClusterSettings
from workbench.values.errors import ClusterLostError, ConfigError
from workbench.values.versions import install_command

_log = logging.getLogger(__name__)

NAMESPACE = "workbench"
T = TypeVar("T")
_TRIED_EVERY_S, _POLLED_S = 2.0, 0.5
_CONNECT_S = 20.0
_RECONNECTS_S = 86_400
"""Ray ends a process whose head is gone for so long; the watch has ended the sweep long before."""
_ENVIRONMENT: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(_RECONNECTS_S),
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a thread that still asks when all is over would connect anew, and wait for ever
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a process without a card sees what it saw
}
_TOKEN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


class Watch:
    """Whether the head answers. For any thread.

    Attributes:
        address: HOST:PORT of the head.
    """

    def __init__(self, address: str, limit_s: float) -> None:
        self.address, self._limit_s = address, limit_s
        self._answered, self._closed = time.monotonic(), threading.Event()
        threading.Thread(target=self._watch, name="head-watch", daemon=True).start()

    @property
    def gone(self) -> bool:
        return time.monotonic() - self._answered > self._limit_s

    def check(self) -> None:
        """Raises: ClusterLostError: the head has not answered for too long."""
        if self.gone:
            raise ClusterLostError(
                f"The cluster's head at {self.address} has not answered for {self._limit_s:g} s. Everything measured "
                "is kept here. Start the head again (ray start --head) and its nodes, and run the same command: it "
                "goes on from there."
            )

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        host, _, port = self.address.rpartition(":")
        while not self._closed.wait(_TRIED_EVERY_S):
            with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=5.0):
                self._answered = time.monotonic()


def within(watch: Watch, call: Callable[[], T]) -> T:
    """What a call of Ray's gives that asks the head: it would wait for a head that is gone.

    Raises:
        ClusterLostError: the head is gone.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="asks-the-head", daemon=True).start()
    while not wait([done], timeout=_POLLED_S).done:
        watch.check()
    return done.result()


def imported_ray() -> Any:
    """Ray, with what it reads from the environment when it is imported.

    Raises:
        ConfigError: it is not installed.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "Ray is not installed.", key="--cluster", hint=f"Install it with: {install_command('cluster')}"
        ) from error
    return ray


@contextlib.contextmanager
def connected(settings: ClusterSettings) -> Iterator[Watch]:
    """A connection for as long as the block runs.

    Raises:
        ConfigError: Ray is missing, the address answers nobody, or it wants a token that this process has not.
    """
    ray = imported_ray()
    if settings.address != "auto":
        host, _, port = settings.address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"no cluster answers at {settings.address}: {error}.",
                key="--cluster",
                hint="Start one there with `ray start --head --port=6379`, or look at the address.",
            ) from error
    answered = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        context = ray.init(
            address=settings.address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            ignore_reinit_error=False,
        )
    except Exception as error:  # Ray raises ConnectionError, RuntimeError, ValueError and its own, by the case
        raise _refused(settings, error) from error
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray puts its own answers in their place
            for number, answer in answered.items():
                signal.signal(number, answer)
    watch = Watch(str(context.address_info["gcs_address"]), settings.head_s)
    try:
        yield watch
    finally:
        watch.close()
        ending = threading.Thread(target=ray.shutdown, name="ray-shutdown", daemon=True)
        ending.start()
        ending.join(0.5 if watch.gone else _CONNECT_S)  # not to be waited for where the head is gone
        if watch.gone:
            atexit.unregister(ray.shutdown)
            atexit.unregister(ray._private.worker.shutdown)  # it is the one that Ray registers, without its wrapper


def _refused(settings: ClusterSettings, error: Exception) -> ConfigError:
    text = str(error)
    if any(word in text.lower() for word in ("unauthenticated", "auth", "token")):
        held = " and ".join(name for name in _TOKEN if os.environ.get(name)) or "nothing"
        return ConfigError(
            f"{settings.words} wants a token, and this process has {held} set.",
            key="--cluster",
            hint="Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as on the cluster's nodes.",
        )
    if "version mismatch" in text.lower():
        return ConfigError(f"{settings.words}: {text.strip()}", key="--cluster", hint="Install the same everywhere.")
    hint = "Start one with `ray start --head`, or give HOST:PORT of its head."
    return ConfigError(f"{settings.words} cannot be joined: {text.strip()[:500]}", key="--cluster", hint=hint)
