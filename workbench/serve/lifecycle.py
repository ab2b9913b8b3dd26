"""From the command to the last worker's end: binding, starting, serving, draining."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import uvloop

from workbench.bundle.golden import golden_batches
from workbench.bundle.opened import Bundle
from workbench.bundle.pipeline import PipelineBundle, check_pipeline
from workbench.bundle.verify import check_bundle
from workbench.serve.access import watched_keys
from workbench.serve.app import EMULATED, Application
from workbench.serve.dispatch import Dispatch
from workbench.serve.events import log, log_libraries, log_loop_defect
from workbench.serve.front_ends import FrontEnds, front_ends_wanted
from workbench.serve.http import BACKLOG
from workbench.serve.metrics import Metrics, bundle_labels
from workbench.serve.pipeline import PipelineService, StageQueues
from workbench.serve.service import Service
from workbench.serve.settings import ServeSettings
from workbench.serve.workers import Place, places_of
from workbench.targets import described
from workbench.values.errors import ConfigError, ToolchainError, WorkbenchError
from workbench.values.system.cpu import control_group_limits
from workbench.values.system.environment import open_files

_OPEN_FILES = 65_536
_BYTES_OF_A_NUMBER = 26
"""As JSON writes a float64 with its sign, its comma and a space."""
_SAMPLES = 2
_LARGER = 4
"""Times the golden samples, where an axis is free and has no bins: others may be larger."""
_BODIES = 16
"""That may come in at the same time."""
_LARGEST_AXIS = 2048
"""Of a pipeline's request, along an axis that is free."""
_NOTHING_LEFT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def serve(bundle: Bundle | PipelineBundle, settings: ServeSettings) -> None:
    """Serve a bundle until SIGTERM or SIGINT; then what waits is answered, and everything has ended on return. A
    pipeline's stages share this machine's cards.

    Must be called in the main thread.

    Raises:
        BundleError: the bundle is damaged or not signed as required, or a worker could not prove it.
        ConfigError: the address cannot be bound, or cards are wanted of a target without any.
        ToolchainError: there are fewer devices than wanted, or no worker could answer for `limits.no_worker_s`.
    """
    if isinstance(bundle, PipelineBundle):
        signer, stages = check_pipeline(bundle, settings.trusted), dict(bundle.bundles)
        for stage in stages.values():
            stage.check_served_here()
    else:
        signer, stages = check_bundle(bundle, settings.trusted), {bundle.manifest.name: bundle}
    open_files(_OPEN_FILES)  # each connection is one, and the usual limit is few clients for a service
    places = {name: places_of(stage.manifest.artifact.target, settings.devices) for name, stage in stages.items()}
    log_libraries()
    if signer is not None:
        log("signature", key=signer.key, comment=signer.trusted_comment)
    with _bound(settings.host, settings.port) as listener:
        main = _main(bundle, with_room(settings, bundle), places, listener)
        failure = asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main)
    log("ended", failure=None if failure is None else str(failure))
    if failure is not None:
        raise failure


async def _main(
    bundle: Bundle | PipelineBundle,
    settings: ServeSettings,
    places: Mapping[str, Sequence[Place]],
    listener: socket.socket,
) -> WorkbenchError | None:
    """Returns why the service gave up, None when it was told to end."""
    loop, name, more = asyncio.get_running_loop(), bundle.manifest.name, dict[str, Any]()
    loop.set_exception_handler(log_loop_defect)
    ending: asyncio.Future[WorkbenchError | None] = loop.create_future()
    now = asyncio.Event()

    def give_up(why: WorkbenchError | None) -> None:
        if not ending.done():
            ending.set_result(why)

    def told(number: signal.Signals) -> None:
        log("signal", name=number.name)
        if ending.done():
            now.set()
        give_up(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
    front: Application | FrontEnds
    if isinstance(bundle, PipelineBundle):
        emulated, metrics, of_stages = bundle.manifest.emulated, Metrics(), {stage: Metrics() for stage in places}
        dispatches = {}
        for stage in places:
            own = replace(settings, service=bundle.manifest.settings[stage])
            dispatches[stage] = Dispatch(bundle.bundles[stage], own, of_stages[stage], places[stage], give_up)
        service = PipelineService(bundle, settings, metrics, StageQueues(metrics, dispatches, of_stages))
        front = Application(service, sum(len(dispatch.all) for dispatch in dispatches.values()))
        more = {"stages": list(dispatches)}
    else:
        manifest, fronts = bundle.manifest, _front_ends(bundle, settings, len(places[name]))
        emulated, lengths = manifest.artifact.toolchain.emulated, () if manifest.text is None else manifest.text.bins
        metrics = Metrics(about=bundle_labels(manifest), lengths=lengths)
        dispatch = Dispatch(bundle, settings, metrics, places[name], give_up)
        dispatches = {name: dispatch}
        if fronts == 1:
            front = Application(Service(bundle, settings, metrics, dispatch), len(dispatch.all))
        else:
            watched_keys(settings)  # a file that cannot be read is told before anything starts
            front = FrontEnds(bundle, settings, dispatch, listener, give_up, fronts)
            more = {"front_ends": fronts}
    if isinstance(front, Application):
        await front.http.start(listener)
    else:
        front.start()
    if emulated:
        log("emulated", warning=EMULATED)
    at, port = listener.getsockname()[:2]
    log("listening", url=f"http://{f'[{at}]' if ':' in at else at}:{port}", bundle=name, **more)
    try:
        for each in dispatches.values():
            each.start()
        failure = await ending
        if failure is None:
            log("draining", requests=front.open_requests)
            whole = await front.drain(settings.limits.grace_s, now)
            log("drained", unanswered=front.open_requests, whole=whole)
    finally:
        await front.end()
        await asyncio.gather(*(each.end() for each in dispatches.values()))
    return failure


def with_room(settings: ServeSettings, bundle: Bundle | PipelineBundle) -> ServeSettings:
    """The same settings with limits that a picture fits into: what one takes as JSON, and some room; a service of texts
    or of small arrays keeps its own.

    The largest bin tells the size of a free axis, else the golden samples do.
    """
    if isinstance(bundle, PipelineBundle):
        shapes = [spec.shape[1:] for spec in bundle.manifest.request]
        numbers = sum(math.prod(axis if isinstance(axis, int) else _LARGEST_AXIS for axis in shape) for shape in shapes)
    elif bundle.manifest.text is not None:
        return settings
    else:
        numbers = _SAMPLES * _numbers(bundle)
    body_bytes = max(settings.limits.body_bytes, _BYTES_OF_A_NUMBER * numbers)
    unread_bytes = max(settings.limits.unread_bytes, _BODIES * body_bytes)
    return replace(settings, limits=replace(settings.limits, body_bytes=body_bytes, unread_bytes=unread_bytes))


def _numbers(bundle: Bundle) -> int:
    """Of a sample."""
    manifest = bundle.manifest
    bins = {axis.name: axis.bins[-1] for axis in manifest.axes if axis.bins}
    shown: dict[str, tuple[int, ...]] = {}
    for golden in golden_batches(bundle):
        for name, array in golden.feeds.items():
            shown[name] = tuple(map(max, shown.get(name, array.shape), array.shape))
    numbers, larger = 0, 1
    for spec in manifest.model.inputs:
        free = shown.get(spec.name, ())[1:]
        sizes = [axis if isinstance(axis, int) else bins.get(str(axis), 0) for axis in spec.shape[1:]]
        larger = larger if all(sizes) else _LARGER
        numbers += math.prod(size or (free[at] if at < len(free) else 1) for at, size in enumerate(sizes))
    return larger * numbers


def _front_ends(bundle: Bundle, settings: ServeSettings, cards: int) -> int:
    if settings.front_ends != "auto":
        return int(settings.front_ends)
    return front_ends_wanted(cards, described(bundle.manifest.artifact.target).on_host, _processors())


def _processors() -> int:
    """That this process may use, also by the quota of its control group, which a container has."""
    here = len(os.sched_getaffinity(0))
    quota, _ = control_group_limits()
    return here if quota is None else max(1, min(here, math.floor(quota)))


def _bound(host: str, port: int) -> socket.socket:
    """Raises ConfigError: no such address here, or the port is taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (socket.gaierror, UnicodeError) as error:  # no such name, or nothing that can be one
        hint = "Name an address of this machine; 0.0.0.0 is all of them."
        raise ConfigError(f"{host!r} is no address: {error}.", key="--host", hint=hint) from error
    except OSError as error:
        if error.errno in _NOTHING_LEFT:
            raise ToolchainError(
                f"no socket for {host}:{port}: {error.strerror}. Raise the limit, or end what uses it."
            ) from error
        raise ConfigError(
            f"{host}:{port} cannot be bound: {error.strerror or error}.",
            key="--port",
            hint="Choose another port, or end what listens there.",
        ) from error
