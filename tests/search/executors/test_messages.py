"""Errors of the evaluation process arrive as what they were."""

import errno
import json

import numpy as np

from workbench.search.executors import decode_error, encode_error
from workbench.values.errors import CompileError, ConfigError, ToolchainError


def arrived(error: Exception) -> Exception:
    """As the sweep sees it, raised with a traceback there and sent as text."""
    try:
        raise error
    except Exception as raised:
        return decode_error(json.loads(json.dumps(encode_error(raised))))


def test_errors_raised_on_purpose_keep_class_words_and_facts() -> None:
    wrong = arrived(ConfigError("is wrong.", file="x.yaml", line=3, key="a.b", hint="Mend it."))
    refused = arrived(CompileError("no.", transient=True))

    assert isinstance(wrong, ConfigError)
    assert str(wrong) == "x.yaml:3: a.b: is wrong. Mend it."
    assert (wrong.file, wrong.line, wrong.key) == ("x.yaml", 3, "a.b")
    assert isinstance(arrived(ToolchainError("no device.")), ToolchainError)
    assert isinstance(refused, CompileError)
    assert refused.transient


def test_mistakes_keep_their_class_and_bring_their_traceback() -> None:
    for error in (KeyError("x"), ZeroDivisionError("by zero"), RuntimeError("a"), StopIteration("s")):
        found = arrived(error)
        assert type(found) is type(error)
        assert found.args == error.args
        assert "test_messages.py" in found.__notes__[0]
    full = arrived(OSError(errno.ENOSPC, "No space left on device", "/x"))
    assert isinstance(full, OSError)
    assert (full.errno, full.filename) == (errno.ENOSPC, "/x")


def test_a_class_of_somebody_else_arrives_as_the_nearest_of_pythons_own_with_its_name() -> None:
    singular = arrived(np.linalg.LinAlgError("singular"))
    undecodable = arrived(UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"))

    assert type(singular) is ValueError
    assert str(singular) == "LinAlgError: singular"
    assert isinstance(undecodable, ValueError)
