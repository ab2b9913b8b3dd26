"""Every error the workbench raises on purpose, sorted by who can act on it.

    WorkbenchError
    ├─ ConfigError          the user's file or argument: stop before any work
    ├─ ToolchainError       the machine: tool missing, disk full, no device; stop the sweep
    ├─ CandidateError       this candidate: recorded with stage and log, the sweep goes on
    │  ├─ CheckError  CalibrationError  LoweringError  CompileError  MeasureError  CrashError
    └─ BundleError          an artifact that must not be served

A message says the fact, the value and the next step. In a sweep, `CandidateError` becomes a value in one place,
`workbench.search.pipeline`; besides, only the doctor catches it, whose test layer it turns into a finding.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

_MOST_QUOTED = 2000
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MOST_COMPARED = 500
"""Characters of a name, and names, that are looked through for a misspelling: more are no misspelling's matter."""


class WorkbenchError(Exception):
    """Base of every error raised on purpose."""


class ConfigError(WorkbenchError):
    """Something the user wrote is wrong.

    The message begins with `file:line: key.path` as far as they are known, so that an editor can jump there.
    """

    def __init__(
        self,
        rule: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        rule, key, hint = _printable(rule), key and _printable(key), hint and _printable(hint)
        self.rule, self.file, self.line, self.key, self.hint = rule, file, line, key, hint
        place = f"{file}" if file is not None else ""
        if place and line is not None:
            place += f":{line}"
        parts = [part for part in (place, key) if part]
        text = ": ".join([*parts, rule])
        super().__init__(f"{text} {hint}" if hint else text)


def _printable(text: str) -> str:
    """What an error may quote of a file: no control characters, which a terminal obeys, and an end."""
    if len(text) > _MOST_QUOTED:
        text = f"{text[: _MOST_QUOTED // 2]} … {text[-_MOST_QUOTED // 2 :]}"
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class ToolchainError(WorkbenchError):
    """The machine cannot do what was asked, whatever the candidate: stop the sweep."""


class ClusterLostError(ToolchainError):
    """The head of a cluster is gone. Threads of Ray's own still wait for it and may crash the end of the process."""


class CandidateError(WorkbenchError):
    """One candidate cannot be evaluated; the sweep records it and goes on.

    Attributes:
        stage: name of the stage that failed (class attribute of each child).
        log_path: the tool's own output, where there is one.
        transient: True when the same candidate may succeed on a second try (a killed child, a timeout);
            transient failures are never cached.
    """

    stage = "evaluate"

    def __init__(self, message: str, *, log_path: Path | None = None, transient: bool = False) -> None:
        super().__init__(message)
        self.log_path = log_path
        self.transient = transient


class CheckError(CandidateError):
    """The pre-check found something the target refuses."""

    stage = "check"


class CalibrationError(CandidateError):
    """Activations could not be observed, or no scale can be derived from them."""

    stage = "calibrate"


class LoweringError(CandidateError):
    """The model could not be rewritten for the target."""

    stage = "lower"


class CompileError(CandidateError):
    """The target's compiler refused the lowered model."""

    stage = "compile"


class MeasureError(CandidateError):
    """A compiled model failed, or gave numbers that cannot be scored, while it was measured."""

    stage = "measure"


class CrashError(CandidateError):
    """The process that evaluated it died, while the one that asked for it lived.

    Attributes:
        stage: which had begun.
    """

    def __init__(self, message: str, *, stage: str, log_path: Path | None = None) -> None:
        super().__init__(message, log_path=log_path, transient=True)
        self.stage = stage


MAX_CRASHES = 2
"""A candidate whose evaluation process died so many times, while the sweep lived, is recorded as failed."""


class BundleError(WorkbenchError):
    """A bundle is damaged, incomplete, or not fit to be served here."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint sentence with the valid names closest to a misspelt one, or all of them when none is close."""
    names = sorted(valid)
    if len(name) > _MOST_COMPARED or len(names) > _MOST_COMPARED or max(map(len, names), default=0) > _MOST_COMPARED:
        return f"{len(names)} names are valid."
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(repr(c) for c in close)}?"
    return f"Valid names: {', '.join(names)}." if names else ""
