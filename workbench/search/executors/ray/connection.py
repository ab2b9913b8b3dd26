"""What the user says of a cluster, by an address or a small file; the driver's connection to it, and a watch that
notices when its head is gone.

    version: 1
    address: 10.0.0.1:6379            # HOST:PORT of the head, or `auto` on a machine of the cluster
    store: s3://team/workbench        # of results, beside the workspace, which all machines see; default: none
    cards: 8                          # of the cluster that this sweep takes at most; all without
    processors_per_card: 2            # reserved on its host while a card is held
    compile: {slots: 8}
    timeouts: {card: 2m, silent: 1h, head: 30s}
    environment: {NAME: value}        # of every process that evaluates or compiles on the cluster

Ray itself waits for a lost head for minutes and then ends the process: the watch is quicker, and what waits for a card
asks it. Calls of the head may hang then, so they are made in threads that nobody waits for.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from workbench.values.documents.yaml_reader import read_yaml
from workbench.values.errors import ClusterLostError, ConfigError
from workbench.values.versions import install_command

MOST_CARDS = 4096
_ADDRESS = re.compile(r"[A-Za-z0-9._-]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMS = "HOST:PORT of a cluster's head, 'auto' or a cluster's YAML file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Attributes:
    address: HOST:PORT, or 'auto'.
    store: shared store of results; '' for none.
    cards: to be taken at most; None for all that the cluster has.
    processors_per_card: reserved on its host for as long as a card is held.
    compile_slots: compiles at once; None for as many as the cards of the sweep, 0 for none ahead of the cards.
    card_s: how long a card is waited for that nobody else holds.
    silent_s: a card that says nothing for so long hangs.
    head_s: how long the cluster's head may not answer.
    """

    address: str
    store: str = ""
    cards: int | None = None
    processors_per_card: int = 1
    compile_slots: int | None = None
    card_s: float = 120.0
    silent_s: float = 3600.0
    head_s: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return f"the cluster at {self.address}"


def cluster_settings(text: str) -> ClusterSettings:
    """What `--cluster` says: an address, 'auto', or the name of a file.

    Raises:
        ConfigError: it is none of them, or the file is wrong.
    """
    if text.endswith((".yaml", ".yml")) or (os.sep in text and "://" not in text):
        return read_cluster(Path(text))
    if text.startswith("ray://"):
        raise ConfigError(
            f"{text!r} is an address of Ray's client, through which a sweep cannot see its cards die.",
            key="--cluster",
            hint="Start the sweep on a machine of the cluster and give HOST:PORT of its head (port 6379 by default).",
        )
    if not _is_address(text):
        raise ConfigError(f"{text!r} is no cluster.", key="--cluster", hint=f"Give {_FORMS}.")
    return ClusterSettings(address=text)


def read_cluster(path: Path) -> ClusterSettings:
    """Read a cluster's file.

    Raises:
        ConfigError: with file, line and key of all that is wrong in it.
    """
    with read_yaml(path) as top:
        address = top.text("address")
        if not _is_address(address):
            top.refuse("address", f"{address!r} is no address.", f"Give {_FORMS.rpartition(' or ')[0]}.")
        slots = None
        if top.has("compile"):
            with top.section("compile") as section:
                slots = section.optional("slots", lambda key: section.integer(key, minimum=0, maximum=MOST_CARDS))
        environment: dict[str, str] = {}
        if top.has("environment"):
            with top.section("environment") as section:
                environment = {name: section.text(name) for name in section.names()}
                for name in environment:
                    if not _NAME.fullmatch(name):
                        section.refuse(name, "is no name of a variable.")
        times: dict[str, float] = {}
        if top.has("timeouts"):
            with top.section("timeouts") as section:
                times = {f"{of}_s": section.seconds(of) for of in ("card", "silent", "head") if section.has(of)}
        return ClusterSettings(
            address=address,
            store=top.text("store", default=""),
            cards=top.optional("cards", lambda key: top.integer(key, minimum=1, maximum=MOST_CARDS)),
            processors_per_card=top.integer("processors_per_card", default=1, minimum=0, maximum=MOST_CARDS),
            compile_slots=slots,
            environment=environment,
            **times,
        )


def _is_address(text: str) -> bool:
    return text == "auto" or _ADDRESS.fullmatch(text) is not None


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
