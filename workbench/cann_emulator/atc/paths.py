"""Paths on atc's command line: which characters, what must exist, what is made (atc.md §5.4 end, §6).

Rules of ge v8.5.0 base/common/util.cc:36-48,179-305: an input path is judged by its resolved form, an output path as
it is written, and a missing output folder is made while the flags are checked.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure

PATH_MAX = 4096
_ALPHABET = re.compile(r"[一-龥A-Za-z0-9./_-]+")
_ALPHABET_REASON = "a path holds letters, digits, '.', '/', '_', '-' and Chinese characters only"


def check_input(path: str, flag: str) -> None:
    """A file that is read.

    Raises:
        AtcFailure: E10004 (empty); E10001 (missing, a character outside the alphabet, not readable).
    """
    if not path:
        raise failure("E10004", parameter=flag)
    try:
        resolved = str(Path(path).resolve(strict=True))
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        text = error.strerror if isinstance(error, OSError) else "Too many levels of symbolic links"
        raise _bad_path(path, flag, f"it cannot be resolved: {text}") from error
    if not _ALPHABET.fullmatch(resolved):
        raise _outside_alphabet(path, flag)
    if not os.access(resolved, os.R_OK):
        raise _bad_path(path, flag, "it cannot be read: [Errno 13] Permission denied")


def check_output(path: str, flag: str) -> None:
    """A file that is written at the end; its folder is made when it is missing.

    Raises:
        AtcFailure: E10004 (empty); E10001 (too long, a character outside the alphabet, an existing file that cannot be
            written, a folder that cannot be made).
    """
    if not path:
        raise failure("E10004", parameter=flag)
    if len(os.fsencode(path)) >= PATH_MAX:
        raise _bad_path(path, flag, f"it is as long as {PATH_MAX} bytes or longer")
    if not _ALPHABET.fullmatch(path):
        raise _outside_alphabet(path, flag)
    if os.access(path, os.F_OK):
        if not os.access(path, os.W_OK):
            raise _bad_path(path, flag, "it cannot be written: [Errno 13] Permission denied")
        return
    folder = path.rpartition("/")[0]
    if folder:
        try:
            _make(Path(folder))
        except OSError as error:
            raise _bad_path(path, flag, f"cannot create directory: {error.strerror}") from error


def _make(folder: Path) -> None:
    """The folder and those above it that are missing, each for its owner alone."""
    for part in (*reversed(folder.parents), folder):
        part.mkdir(mode=0o700, exist_ok=True)


def check_file_name(path: str, flag: str) -> None:
    """The path of the OM, before its suffix is added.

    Raises:
        AtcFailure: E10021 (too long), E10022 (it ends in a separator).
    """
    if len(os.fsencode(path)) > PATH_MAX:
        raise failure("E10021", parameter=flag, size=str(PATH_MAX))
    if path.endswith(("/", "\\")):
        raise failure("E10022", parameter=flag, filename=path)


def _bad_path(path: str, flag: str, reason: str) -> AtcFailure:
    return failure("E10001", parameter=f"--{flag}", value=path, reason=reason)


def _outside_alphabet(path: str, flag: str) -> AtcFailure:
    # the vendor's matcher reports for itself before its caller does: an inner error, never the headline
    inner = Record(code="E19999", arguments={"message": "the expression for paths does not match"})
    return AtcFailure(inner, *_bad_path(path, flag, _ALPHABET_REASON).records)
