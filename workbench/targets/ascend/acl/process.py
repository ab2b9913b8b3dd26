"""pyACL in this process: initialized once, by one owner, for however many sessions (pyacl.md §3.1, §3.5).

- `acl.init` is called when the first session opens. A return of 100002 means that another library of this process was
  first: then it is not ours to finalize.
- A device is set once and kept until the process ends, since the first `set_device` takes seconds (pyacl.md §3.6).
- `acl.finalize` is called at exit, after the sessions still open were closed: `atexit` runs what was registered last
  first, and this is registered after `acl` was imported. Never in `__del__`.
- After a failure that leaves the runtime in doubt, the last session to close takes everything down, and the next one
  begins with a fresh `acl.init`. That this is enough of a rebuild without a new process is [inferred].
- A forked child must not use the parent's handles; it is told so, and nothing is released there.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

from workbench.targets.ascend.acl.calls import REPEAT_INITIALIZE, clear_doubt, do, doubt, library, released
from workbench.values.errors import MeasureError, ToolchainError, WorkbenchError
from workbench.values.system.files import temporary_beside

_log = logging.getLogger(__name__)

ACL_CONFIG = "WORKBENCH_ACL_CONFIG"
"""Environment variable naming an acl.json for `acl.init`, in a process that looks for overflows and times nothing."""


def write_acl_config(directory: Path, dump: str, section: Mapping[str, object]) -> Path:
    """acl.json with a section about dumps into a folder beside it, which has to exist before `acl.init`.

    The overflow check, a dump of tensors and profiling exclude each other, and nothing is timed meanwhile.
    """
    folder = directory / dump
    folder.mkdir(parents=True, exist_ok=True)
    file = directory / "acl.json"
    content = {"dump": {"dump_path": str(folder.resolve()), **section}}
    with temporary_beside(file, durable=False) as draft:
        draft.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return file


class _Runtime:
    """What this process holds of pyACL.

    Attributes:
        undo: finalizes it, if `acl.init` was ours, and resets the devices.
        sessions: how to close each session that is open, oldest first.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.undo = ExitStack()
        self.devices: set[int] = set()
        self.sessions: dict[int, Callable[[], object]] = {}


_lock = threading.RLock()
_runtime: _Runtime | None = None


def forked() -> bool:
    """Whether this is a child that was forked after pyACL had been initialized."""
    return _runtime is not None and _runtime.pid != os.getpid()


def check_process() -> None:
    """Raises ToolchainError in a forked child."""
    if _runtime is not None and forked():
        raise ToolchainError(
            f"This process was forked from process {_runtime.pid}, which had initialized pyACL already; its handles do "
            "not work here. Start workers with multiprocessing's 'spawn', and open the session inside the worker."
        )


def enter(device_id: int, close: Callable[[], object]) -> int:
    """Make pyACL and the device ready for a session, and return the number it is known by.

    Args:
        close: closes the session, for the case that nobody has when the process ends.

    Raises:
        ToolchainError: no pyACL, no device, no right to use it; or this is a forked child.
        MeasureError: an earlier session left the runtime in doubt and others still use it (transient).
    """
    check_process()
    with _lock:
        if doubt() and _runtime is not None and _runtime.sessions:
            raise MeasureError(
                f"The device's runtime is in doubt ({doubt()}) and {len(_runtime.sessions)} sessions are still "
                "open. Close them first; the next one then begins anew.",
                transient=True,
            )
        if doubt():
            _rebuild_later()
        runtime = _runtime or _initialized()
        if device_id not in runtime.devices:
            _start("rt.set_device", device_id, about=f"device {device_id} cannot be used")
            runtime.undo.callback(do, "rt.reset_device", device_id)
            runtime.devices.add(device_id)
        number = max(runtime.sessions, default=0) + 1
        runtime.sessions[number] = close
        return number


def leave(number: int) -> None:
    """A session is closed. The last one to leave a runtime in doubt takes it down; what fails then is logged."""
    with _lock:
        if _runtime is not None:
            _runtime.sessions.pop(number, None)
        if doubt() and not (_runtime and _runtime.sessions):
            _rebuild_later()


def shut_down() -> None:
    """Close every open session and give everything back. A later session begins anew.

    Raises:
        WorkbenchError: the first of what failed, after all else was released.
    """
    if _runtime is None or forked():
        return
    sessions = ExitStack()
    for close in tuple(_runtime.sessions.values()):
        sessions.callback(close)
    first, last = released(sessions), _taken_down()
    if (error := first or last) is not None:
        raise error


def _initialized() -> _Runtime:
    global _runtime  # one runtime in a process: this module is its owner
    library()
    config = os.environ.get(ACL_CONFIG)
    arguments = (config,) if config else ()
    code = _start("init", *arguments, about="pyACL cannot be initialized", accept=(REPEAT_INITIALIZE,))
    _runtime = _Runtime()
    if code != REPEAT_INITIALIZE:
        _runtime.undo.callback(do, "finalize")
    atexit.unregister(_exit)  # not twice
    atexit.register(_exit)
    return _runtime


def _start(name: str, *arguments: int | str, about: str, accept: Collection[int] = ()) -> int:
    """What fails here fails for every candidate, whatever the code: which one a missing driver gives is open."""
    try:
        return do(name, *arguments, about=about, accept=accept)
    except MeasureError as error:
        raise ToolchainError(str(error)) from error


def _rebuild_later() -> None:
    if (error := _taken_down()) is not None:
        _log.warning("while pyACL was taken down after %s: %s", doubt(), error)
    clear_doubt()


def _taken_down() -> WorkbenchError | None:
    global _runtime  # see `_initialized`
    with _lock:
        runtime, _runtime = _runtime, None
        return None if runtime is None else released(runtime.undo)


def _exit() -> None:
    try:
        shut_down()
    except WorkbenchError as error:
        _log.warning("at exit: %s", error)
