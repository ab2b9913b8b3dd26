"""How a call fails: return codes, reason texts, what strict mode does, and faults on request.

Codes and meanings: pyacl.md §2.6 and §2.7; the wording of a message is [inferred] where only the meaning is known. The
runtime keeps its last code per thread; a call that succeeds leaves it as it is (hicann/runtime, inner_thread_local.cpp
and api_global_err.cc). What AscendCL or the graph engine refuse before they ask the runtime (1000xx, 145xxx) is not in
it.

CANN_EMULATOR_STRICT=1 raises where the vendor's behaviour is not established, so that a test of a program finds a
mistake at the call that made it.

    CANN_EMULATOR_FAULTS="acl.mdl.execute:3=507011;acl.rt.malloc:2=207001"
    fault  := name ":" when "=" what
    name   := of the function, such as acl.rt.memcpy
    when   := the how-manieth call of that name in this process, from 1; "n+" means every call from the n-th on
    what   := a return code, or "lost": the device is gone, this and every later call that needs it gives 507899

A call that fails on request does nothing else. Functions that give no return code give their null value instead.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass

from workbench.cann_emulator.atc.failure import Record, error_lines, stamp


class Failed(Exception):
    """A call fails with a code; its reason text, where there is one, is recorded already."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


# AscendCL
INVALID_PARAM = 100000
REPEAT_INITIALIZE = 100002
INVALID_FILE = 100003
PARSE_FILE = 100006
INVALID_DUMP_CONFIG = 100009
REPEAT_FINALIZE = 100037
GE_FAILURE = 500002

# Runtime
RT_PARAM_INVALID = 107000
RT_INVALID_DEVICEID = 107001
RT_CONTEXT_NULL = 107002
RT_STREAM_CONTEXT = 107003
RT_EVENT_TIMESTAMP_INVALID = 107006
RT_STREAM_SUBSCRIBE = 107011
RT_THREAD_SUBSCRIBE = 107012
RT_STREAM_NO_CB_REG = 107015
RT_INVALID_MEMORY_TYPE = 107016
RT_INVALID_HANDLE = 107017
RT_FEATURE_NOT_SUPPORT = 207000
RT_MEMORY_ALLOCATION = 207001
RT_MEMORY_FREE = 207002
RT_NO_STREAM_RESOURCE = 207008
RT_INTERNAL_ERROR = 507000
RT_CONTEXT_RELEASE_ERROR = 507007
RT_REPORT_TIMEOUT = 507012
RT_AICORE_EXCEPTION = 507015
RT_STREAM_SYNC_TIMEOUT = 507046
RT_DRV_INTERNAL_ERROR = 507899

# Graph engine
GE_EXEC_NOT_INIT = 145001
GE_EXEC_MODEL_PATH_INVALID = 145002
GE_EXEC_MODEL_ID_INVALID = 145003
GE_EXEC_MODEL_DATA_SIZE_INVALID = 145006
GE_DYNAMIC_INPUT_LENGTH_INVALID = 145012
GE_DYNAMIC_BATCH_SIZE_INVALID = 145013
GE_MEMORY_ALLOCATION = 245000
GE_LOAD_MODEL_PARTITION_FAILED = 545002


# --- reason texts ---

_THREADS = threading.local()


def report(code: str, **arguments: object) -> None:
    """Add a record for this thread."""
    texts = {name: str(value) for name, value in arguments.items()}
    _records().append(Record(code=code, arguments=texts, stamp=stamp()))


def refused(code: int, entry: str, **arguments: object) -> Failed:
    """The failure with a code whose reason text is this one."""
    report(entry, **arguments)
    return Failed(code)


def invalid(parameter: str, value: object, why: str) -> Failed:
    return refused(INVALID_PARAM, "EH0001", value=value, param=parameter, reason=why)


def present(**pointers: int) -> None:
    """Refuse the first of these that is null."""
    for name, pointer in pointers.items():
        if not pointer:
            raise refused(INVALID_PARAM, "EH0002", param=name)


def take() -> str | None:
    """The text of all records of this thread, which are forgotten; None where there are none."""
    records = _records()
    told = tuple(records)
    records.clear()
    return "".join(f"{line}\n" for line in error_lines(told)) or None


def _records() -> list[Record]:
    if not hasattr(_THREADS, "records"):
        _THREADS.records = []
    records: list[Record] = _THREADS.records
    return records


# --- whether the process is initialised ---


@dataclass(slots=True)
class Process:
    references: int = 0  # `init` calls that `finalize_reference` did not undo yet
    content: bytes | None = None  # of the first configuration of the process
    finalized: bool = False


PROCESS = Process()


def require_init() -> None:
    """Fails with 145001 where the library is not initialised."""
    if not PROCESS.references:
        raise Failed(GE_EXEC_NOT_INIT)


# --- strict mode ---

STRICT = {"on": os.environ.get("CANN_EMULATOR_STRICT", "") not in ("", "0")}


class NotEstablished(RuntimeError):
    """The call has no documented result; on a device it corrupts memory, faults or crashes the process."""


def undefined(fact: str, code: int = 0) -> Failed:
    """The failure with `code` [inferred] and a reason text, to be raised where the call fails; raised if strict."""
    if STRICT["on"]:
        raise NotEstablished(f"{fact}. The vendor documents no result for this call (without strict mode: {code})")
    return refused(code, "EE1001", extend_info=fact)


# --- faults on request ---

_FAULT = re.compile(r"(acl(?:\.\w+)+):(\d+)(\+?)=(\d+|lost)")

armed: dict[str, list[tuple[int, bool, int]]] = {}
"""Name → (call, from there on, code); the key LOST is there once the device is lost."""
LOST = "lost"
_LOST_CODE = -1
_COUNTED: dict[str, int] = {}


def arm(text: str) -> None:
    """Replace the faults by those of `text`, and count calls from here."""
    armed.clear()
    _COUNTED.clear()
    for part in filter(None, (p.strip() for p in text.split(";"))):
        match = _FAULT.fullmatch(part)
        if match is None:
            raise ValueError(f"CANN_EMULATOR_FAULTS: {part!r} is not NAME:N=CODE, such as acl.rt.malloc:2=207001")
        name, call, onwards, what = match.groups()
        code = _LOST_CODE if what == "lost" else int(what)
        armed.setdefault(name, []).append((int(call), bool(onwards), code))


def strike(name: str, needs_device: bool) -> int:
    """The code that this call of `name` fails with, 0 for none. Only called while something is armed."""
    calls = _COUNTED[name] = _COUNTED.get(name, 0) + 1
    for call, onwards, code in armed.get(name, ()):
        if calls == call or (onwards and calls > call):
            if code == _LOST_CODE:
                armed[LOST] = []
                break
            report("E19999", message=f"{name} fails on request (CANN_EMULATOR_FAULTS)")
            return code
    if needs_device and LOST in armed:
        report("EL0001", reason="the device is lost (CANN_EMULATOR_FAULTS)")
        return RT_DRV_INTERNAL_ERROR
    return 0


arm(os.environ.get("CANN_EMULATOR_FAULTS", ""))
