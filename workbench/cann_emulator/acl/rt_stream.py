"""Streams of `acl.rt` (pyacl.md §1.3, §2.5 "Stream and event")."""

from __future__ import annotations

from workbench.cann_emulator.acl import codes, contexts, host_clock, reason, streams, strict
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.contexts import Context
from workbench.cann_emulator.acl.streams import Stream


@call("", "kr")
def create_stream() -> tuple[int, int]:
    return _create_stream()


@call("ii", "kr")
def create_stream_with_config(priority: int, flag: int) -> tuple[int, int]:
    """Flags change only how quick launch and wait are; an A2 has one priority."""
    return _create_stream()


@call("k", "r")
def destroy_stream(stream: int) -> int:
    """Waits for what is queued. The default stream belongs to its context and is refused."""
    found, code = _own_stream(stream)
    if found is None:
        return code
    if found.default:
        return strict.undefined("destroy_stream of a default stream", codes.RT_PARAM_INVALID)
    return streams.destroy(found)


@call("k", "r")
def synchronize_stream(stream: int) -> int:
    found, code = stream_of(stream)
    return code if found is None else streams.synchronize(found)


@call("ki", "r")
def synchronize_stream_with_timeout(stream: int, timeout: int) -> int:
    """Milliseconds of the virtual clock, -1 waits for ever."""
    if timeout < -1:
        return codes.RT_PARAM_INVALID
    found, code = stream_of(stream)
    if found is None:
        return code
    if timeout >= 0 and streams.pending_ns(found) > timeout * 1_000_000:
        host_clock.spend(timeout * 1_000_000)
        reason.report("EE1002", reason=f"Time-out: {timeout} ms.")
        return codes.RT_STREAM_SYNC_TIMEOUT
    return streams.synchronize(found)


@call("k", "Ir")
def stream_query(stream: int) -> tuple[int, int]:
    """0 when everything is done, 1 when not. Asking lets the stream get on."""
    found, code = stream_of(stream)
    if found is None:
        return 0, code
    if not found.tasks:
        return 0, 0
    done = streams.pending_ns(found) <= 0
    return int(not done), streams.synchronize(found)


def stream_of(handle: int) -> tuple[Stream | None, int]:
    context = contexts.current()
    if context is None:
        return None, codes.RT_CONTEXT_NULL
    found, code = streams.resolve(handle, context)
    return (found, code) if found is not None else (None, _wrong_stream(handle, code))


def _own_stream(handle: int) -> tuple[Stream | None, int]:
    if not handle:
        reason.report("EH0002", param="stream")
        return None, codes.INVALID_PARAM
    return stream_of(handle)


def _wrong_stream(handle: int, code: int) -> int:
    if code == codes.RT_INVALID_HANDLE:
        return strict.undefined(f"{handle:#x} is no live stream", code)
    reason.report("EE1010", what="The stream", reason="")
    return code


def _create_stream() -> tuple[int, int]:
    context: Context | None = contexts.current()
    if context is None:
        return 0, codes.RT_CONTEXT_NULL
    stream = streams.create(context, site())
    return (stream.handle, 0) if stream is not None else (0, codes.RT_NO_STREAM_RESOURCE)
