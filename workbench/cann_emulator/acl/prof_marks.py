"""Marks of a program in a profile: `acl.prof` steps, stamps and subscriptions.

Forms of the calls: the binding's open source of 2026, prof_wrap.cpp. The emulated profile does not show the marks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from workbench.cann_emulator.acl import codes, contexts, handles, leaks, models, reason, streams
from workbench.cann_emulator.acl.call import call, site

_CONFIG_TYPES = range(1, 12)
"""ACL_PROF_ARGS_MIN and the end of the C enum stand around these [inferred for the end]."""
_TAGS = (0, 1)


@dataclass(slots=True, kw_only=True, eq=False)
class _StepInfo:
    site: tuple[str, int]
    tags: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class _Stamp:
    site: tuple[str, int]
    message: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class _Subscription:
    site: tuple[str, int]
    descriptor: int


_RANGES: set[int] = set()
_RANGE_IDS = itertools.count(1)
_PUSHED: list[int] = []


@call("is", "r", device=False)
def set_config(config_type: int, config: str) -> int:
    """A sampler's setting, by the number of the C enum; there is no hardware to sample here."""
    if config_type not in _CONFIG_TYPES or not config:
        reason.report("EH0001", value=config_type, param="configType", reason="it is no profiling setting")
        return codes.INVALID_PARAM
    return 0


@call("", "k", device=False)
def create_step_info() -> int:
    return handles.give(_StepInfo(site=site()))


@call("k", "n", device=False)
def destroy_step_info(step_info: int) -> None:
    if handles.look(step_info, _StepInfo) is not None:
        handles.drop(step_info)


@call("kik", "r")
def get_step_timestamp(step_info: int, tag: int, stream: int) -> int:
    """Mark the start (0) or the end (1) of a step on a stream; each once."""
    found, context = handles.look(step_info, _StepInfo), contexts.current()
    if found is None or tag not in _TAGS or tag in found.tags:
        return codes.INVALID_PARAM
    if context is None:
        return codes.RT_CONTEXT_NULL
    queue, code = streams.resolve(stream, context)
    if queue is not None:
        found.tags.append(tag)
    return code


@call("", "k", device=False)
def create_stamp() -> int:
    return handles.give(_Stamp(site=site()))


@call("k", "n", device=False)
def destroy_stamp(stamp: int) -> None:
    if handles.look(stamp, _Stamp) is not None:
        handles.drop(stamp)


@call("ksI", "r", device=False)
def set_stamp_trace_message(stamp: int, message: str, length: int) -> int:
    found = handles.look(stamp, _Stamp)
    if found is None or length > len(message.encode()):
        return codes.INVALID_PARAM
    found.message = message.encode()[:length].decode(errors="replace")
    return 0


@call("k", "r", device=False)
def mark(stamp: int) -> int:
    return _of_stamp(stamp)


@call("sk", "r", device=False)
def mark_ex(message: str, stream: int) -> int:
    return 0 if message and handles.look(stream, streams.Stream) is not None else codes.INVALID_PARAM


@call("k", "r", device=False)
def push(stamp: int) -> int:
    code = _of_stamp(stamp)
    if code == 0:
        _PUSHED.append(stamp)
    return code


@call("", "r", device=False)
def pop() -> int:
    if not _PUSHED:
        return codes.INVALID_PARAM
    _PUSHED.pop()
    return 0


@call("k", "Ir", device=False)
def range_start(stamp: int) -> tuple[int, int]:
    code = _of_stamp(stamp)
    if code:
        return 0, code
    range_id = next(_RANGE_IDS)
    _RANGES.add(range_id)
    return range_id, 0


@call("I", "r", device=False)
def range_stop(range_id: int) -> int:
    if range_id not in _RANGES:
        return codes.INVALID_PARAM
    _RANGES.remove(range_id)
    return 0


@call("iii", "k", device=False)
def create_subscribe_config(time_info_switch: int, aicore_metrics: int, descriptor: int) -> int:
    """`descriptor` is the write end of a pipe; 0 for one that cannot be."""
    return handles.give(_Subscription(site=site(), descriptor=descriptor)) if descriptor >= 0 else 0


@call("k", "r", device=False)
def destroy_subscribe_config(config: int) -> int:
    if handles.look(config, _Subscription) is None:
        return codes.INVALID_PARAM
    handles.drop(config)
    return 0


@call("Ik", "r")
def model_subscribe(model_id: int, config: int) -> int:
    """Not emulated: reports of single operators through a pipe."""
    if models.loaded(model_id) is None or handles.look(config, _Subscription) is None:
        return codes.INVALID_PARAM
    reason.report("EH0006", feature="aclprofModelSubscribe", reason="this module is emulated and writes no pipe")
    return codes.PROF_MODULES_UNSUPPORTED


@call("I", "r")
def model_unsubscribe(model_id: int) -> int:
    return codes.INVALID_PARAM if models.loaded(model_id) is None else codes.PROF_MODULES_UNSUPPORTED


def _of_stamp(stamp: int) -> int:
    return 0 if handles.look(stamp, _Stamp) is not None else codes.INVALID_PARAM


for _kind, _what in ((_StepInfo, "profiling steps"), (_Stamp, "profiling stamps"), (_Subscription, "subscriptions")):
    leaks.watch(_kind, _what)
