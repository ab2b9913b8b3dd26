"""From a run of ATC that failed to the error the workbench raises: fact, value, next step, and how to see it again."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from pathlib import Path

from workbench.targets.ascend.atc.atc import TIMEOUT_VARIABLE, Run
from workbench.targets.ascend.atc.codes import explain
from workbench.values.errors import CompileError, ToolchainError

_LONGEST_QUOTE = 400
_FULL_DISK_BYTES = 2**20
_LARGEST_PLOG_BYTES = 200_000

_NOT_FOUND = re.compile(
    r"(?im)error while loading shared libraries: *(?P<library>[^\s:]+)|command not found|bad interpreter"
)
_NO_MEMORY = re.compile(r"(?i)out of memory|cannot allocate memory|bad_alloc|\bMemoryError\b|\bKilled\b")
_MORE_MEMORY = "Close other programs, or set TE_PARALLEL_COMPILER lower, then run it again."
_NO_DISK = re.compile(r"(?i)no space left on device|disk quota exceeded")


def failure_of(run: Run, what: str, found: str) -> CompileError | ToolchainError:
    """The error for a run that did not succeed, whose log is completed.

    Args:
        what: what was compiled, for the message: 'the model for batch 1, length 128'.
        found: what a run that called itself a success left in place of a file, as a clause.
    """
    error = _error_of(run, what, found)
    _complete_log(run)
    return error


def _error_of(run: Run, what: str, found: str) -> CompileError | ToolchainError:
    again, printed = _reproduce(run), run.ended.output

    def refused(words: str, *, transient: bool = False) -> CompileError:
        return CompileError(f"{words} {again}", log_path=run.log, transient=transient)

    if run.ended.code == 0:
        return refused(
            f"ATC ended with exit status 0 for {what}, and {found}. The log has what it printed; `workbench doctor` "
            "checks whether this atc is CANN's."
        )
    if run.ended.why:
        return refused(_ended(run, what), transient=run.ended.why != "garbage")
    if _NO_DISK.search(printed) or shutil.disk_usage(run.directory).free < _FULL_DISK_BYTES:
        return ToolchainError(
            f"ATC could not compile {what}: the disk of {run.directory} is full. Free some space (`workbench cache` "
            f"shows what the cache holds), then run the same command again; what was measured is kept. {again}"
        )
    killed = _signal(run.ended.code)
    if killed in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return refused(
            f"ATC was killed by {killed.name} while it compiled {what}; most often the machine ran out of memory. "
            f"{_MORE_MEMORY}",
            transient=True,
        )
    if killed is not None:
        return refused(
            f"ATC crashed with {killed.name} while it compiled {what}. Try another precision mode or fewer gears, and "
            "send the log to the vendor."
        )
    if (explanation := explain(run.output)) is not None:
        code, meaning, quoted = explanation
        words = (
            f"ATC refused {what}{f' ({code})' if code else ''}: {meaning.problem}. ATC says: {_short(quoted)} "
            f"{meaning.remedy}{_setting(run, quoted)}"
        )
        if meaning.who in ("installation", "disk"):
            return ToolchainError(f"{words} {again}")
        return refused(words, transient=meaning.who in ("files", "memory"))
    if (library := _NOT_FOUND.search(printed)) is not None:
        return ToolchainError(
            f"ATC does not start: {library[0].strip()}. Source CANN's set_env.sh; on a machine without a driver put "
            f"<CANN>/devlib on LD_LIBRARY_PATH. `workbench doctor` looks at all of it. {again}"
        )
    if _NO_MEMORY.search(printed):
        return refused(f"ATC ran out of memory while it compiled {what}. {_MORE_MEMORY}", transient=True)
    return refused(
        f"ATC ended with exit status {run.ended.code} and gave no reason while it compiled {what}. It printed last: "
        f"{_short(' / '.join(run.output.words) or 'nothing')}. Look at the log; `workbench doctor` checks the "
        "installation."
    )


def _reproduce(run: Run) -> str:
    """The command line, for a shell in any directory. Its own is gone by then, so that the model is named in full."""
    named, words = "", []
    for argument in run.command:
        flag, _, value = argument.partition("=")
        words.append(f"{flag}={(run.directory / value).resolve()}" if flag == "--model" else argument)
        named = " (the log holds the files it names)" if flag.lstrip("-") in _TEXT_FILES else named
    return f"Reproduce{named}: {shlex.join(words)}"


def _complete_log(run: Run) -> None:
    """Put what explains the run into its log, since its directory goes away: the command, the files that its flags
    name, and CANN's own log."""
    parts = [f"$ cd {run.directory}\n$ {shlex.join(run.command)}\n"]
    for argument in run.command[1:]:
        flag, _, value = argument.partition("=")
        if flag.lstrip("-") in _TEXT_FILES and Path(value).is_file():
            parts.append(f"--- {flag} {value}\n{Path(value).read_text(encoding='utf-8', errors='replace')}")
    for plog in sorted((run.directory / "log").rglob("*.log")):
        with plog.open("rb") as stream:
            stream.seek(max(0, plog.stat().st_size - _LARGEST_PLOG_BYTES))
            parts.append(f"--- {plog.name}\n{stream.read().decode('utf-8', errors='replace')}")
    with run.log.open("a", encoding="utf-8") as log:
        log.write("\n" + "\n".join(parts))


_TEXT_FILES = frozenset({"fusion_switch_file", "modify_mixlist", "op_precision_mode", "keep_dtype", "customize_dtypes"})


def _ended(run: Run, what: str) -> str:
    if run.ended.why == "timeout":
        return (
            f"ATC did not finish {what} within {run.ended.seconds:.0f} s and was stopped with all its processes. "
            "Try fewer gears or a smaller shape; on a loaded machine run it again, or allow more with "
            f"{TIMEOUT_VARIABLE}."
        )
    if run.ended.why == "garbage":
        return (
            f"ATC printed more than {run.log.stat().st_size // 2**20} MiB while it compiled {what} and was stopped. "
            "Look at the log; `workbench doctor` checks whether this atc is CANN's."
        )
    return f"ATC was stopped while it compiled {what}, because another file of the set failed."


def _signal(status: int | None) -> signal.Signals | None:
    """The signal that ended ATC; its launcher is a shell script, which tells it as 128 + number."""
    number = -status if status is not None and status < 0 else (status or 0) - 128
    return signal.Signals(number) if number in set(signal.Signals) and status != 255 else None


def _setting(run: Run, quoted: str) -> str:
    """The setting whose file ATC's words name."""
    for argument in run.command[1:]:
        flag, _, value = argument.lstrip("-").partition("=")
        if flag in _TEXT_FILES and Path(value).name in quoted:
            return f" The file was written from compile.{'fusions' if flag == 'fusion_switch_file' else flag}."
    return ""


def _short(text: str) -> str:
    """Without what would reach the terminal as control characters, and not too long."""
    text = "".join(c if c.isprintable() and c != "\N{REPLACEMENT CHARACTER}" else "?" for c in text)
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"
