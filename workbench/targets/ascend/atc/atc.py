"""Finding ATC and running it, on paths that it takes.

The resolved path of every input and the literal path of the output may hold letters, digits, `.`, `/`, `_`, `-` and
Chinese characters (ge v8.5.0 base/common/util.cc:36-48,179-305); the rest ends in E10001. Chinese ones are avoided
too: the operator compiler behind ATC was never seen with them [inferred].
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.graph.read import read_model
from workbench.targets.apart import Ended, run_apart
from workbench.targets.ascend.atc.codes import Output, explain, parse_output
from workbench.targets.ascend.installation import REMEDY, compiler_variables, no_cann, tool_of
from workbench.values.errors import CompileError, ConfigError, ToolchainError
from workbench.values.system.scratch import scratch_folder

COMPILE_TIMEOUT_S = 3600.0
"""For one file. The only published time is four minutes, of a small Transformer on an older release (atc.md §11)."""

TIMEOUT_VARIABLE = "WORKBENCH_ATC_TIMEOUT_S"
"""Environment variable with another limit, in seconds."""

_LARGEST_LOG_BYTES = 64 * 2**20
_DEFAULT_WORKERS = 8
"""Of TE_PARALLEL_COMPILER (ATC manual 9.2, environment variables)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of ATC that came to an end.

    Attributes:
        ended: how, and what it printed.
        output: the same, read.
    """

    command: tuple[str, ...]
    directory: Path
    log: Path
    ended: Ended
    output: Output


def find_atc(environment: Mapping[str, str]) -> Path:
    """The compiler that this environment starts: `atc` on PATH, or in the CANN that ASCEND_HOME_PATH names.

    Raises:
        ToolchainError: there is none, or there is a CANN that was not switched on.
    """
    roots = filter(None, map(environment.get, ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")))
    if (found := tool_of("atc", environment, *map(Path, roots))) is not None:
        return found.absolute()
    why, remedy = no_cann(environment)
    raise ToolchainError(
        f"No atc on PATH and none under ASCEND_HOME_PATH: {why or 'its CANN has none'}. {remedy or REMEDY}"
    )


def compile_timeout_s(environment: Mapping[str, str]) -> float:
    """How long one compile may take here.

    Raises:
        ConfigError: WORKBENCH_ATC_TIMEOUT_S is no positive number.
    """
    text = environment.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else COMPILE_TIMEOUT_S
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < math.inf:
        raise ConfigError(f"{text!r} is no number of seconds.", key=TIMEOUT_VARIABLE, hint="Write such as 1800.")
    return seconds


def check_operator_package(environment: Mapping[str, str]) -> None:
    """Raises ToolchainError where ASCEND_OPP_PATH leads nowhere: ATC would blame the model's operators for it."""
    named = environment.get("ASCEND_OPP_PATH")
    if named and not Path(named).is_dir():
        raise ToolchainError(
            f"Half an installation of CANN: ASCEND_OPP_PATH names {named}, which is no folder, and without operators "
            "ATC compiles nothing. Install the ops package of the 910b for CANN 8.5.0, then source its set_env.sh."
        )


def compile_environment(base: Mapping[str, str], directory: Path, *, workers: int) -> dict[str, str]:
    """The environment of one compile: of `base` what no key has to hold, with logs and side files in `directory`.

    Args:
        workers: operator compile processes that this compile may start; a smaller TE_PARALLEL_COMPILER stays.
    """
    environment = compiler_variables(base)
    try:
        asked = int(environment.get("TE_PARALLEL_COMPILER", _DEFAULT_WORKERS))
    except ValueError:
        asked = _DEFAULT_WORKERS
    environment["TE_PARALLEL_COMPILER"] = str(max(1, min(asked, workers, 32)))
    environment["ASCEND_PROCESS_LOG_PATH"] = str(directory / "log")
    return environment


def argument_vector(flags: Mapping[str, str]) -> list[str]:
    """`--flag=value` for every flag. No shell sees it, so that nothing is quoted."""
    return [f"--{flag}={value}" for flag, value in flags.items()]


def run_atc(
    flags: Mapping[str, str],
    *,
    directory: Path,
    log: Path,
    base: Mapping[str, str],
    workers: int = 1,
    stop: threading.Event | None = None,
) -> Run:
    """Run ATC to its end, its time limit, or until `stop` is set. All its processes are gone when this returns.

    Args:
        directory: where it runs, and leaves its side files.
        log: everything it prints goes there.
        base, workers: see `compile_environment`.

    Raises:
        ToolchainError: there is none, or it cannot be started.
        ConfigError: see `compile_timeout_s`.
    """
    command = [str(find_atc(base)), *argument_vector(flags)]
    try:
        ended = run_apart(
            command,
            environment=compile_environment(base, directory, workers=workers),
            timeout_s=compile_timeout_s(base),
            log=log,
            cwd=directory,
            stop=stop,
            most_log_bytes=_LARGEST_LOG_BYTES,
        )
    except OSError as error:
        if error.filename != command[0]:  # the log's
            raise
        raise ToolchainError(
            f"ATC cannot be started: {error.strerror}: {command[0]}. Install CANN again, or mend its rights."
        ) from error
    return Run(command=tuple(command), directory=directory, log=log, ended=ended, output=parse_output(ended.output))


# --- which paths ATC takes, and how to stay within them ---------------------------------------------------------------


_REFUSED = re.compile(r"[^A-Za-z0-9./_-]")


def refused_in(path: Path) -> list[str]:
    """What ATC refuses in this path for input and output alike, each once, sorted; nothing where it takes it.

    A `.om` in a directory's name is unsafe too: the suffix of a dynamic model goes before the first one (ge v8.5.0
    base/common/helper/model_helper.cc:514-542).
    """
    resolved = str(path.resolve())
    return sorted(set(_REFUSED.findall(resolved))) or ([".om"] if ".om" in resolved else [])


@contextlib.contextmanager
def work_directory(beside: Path, name: str) -> Iterator[Path]:
    """A new empty directory with a path that ATC takes: inside `beside`, or in the temporary folder where that has
    blanks or other characters ATC refuses. It is gone when the block ends.

    Raises:
        ToolchainError: neither can be written, or neither has a path that ATC takes.
    """
    tried: list[str] = []
    with contextlib.ExitStack() as stack:
        for parent in (beside, Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp")):
            if refused := refused_in(parent):
                tried.append(f"{parent} (ATC refuses {refused} in a path)")
                continue
            try:  # its name has letters, digits, `.`, `-` and `_` only
                place = stack.enter_context(scratch_folder(name, inside=parent))
            except OSError as error:
                tried.append(f"{parent} ({error.strerror})")
                continue
            yield place
            return
    raise ToolchainError(
        f"ATC needs a folder to work in, and none can be used: {'; '.join(tried)}. Set TMPDIR to a writable folder "
        "whose path has letters, digits and . / _ - only."
    )


def place_model(lowered: Path, root: Path) -> Path:
    """The model under a path that ATC takes, below `root`: a link to its folder, or a copy with its external files.

    Seen from a directory in `root` it has the same name wherever it lies, and so has the command line that ATC stores
    in what it compiles.

    Raises:
        OSError: it cannot be read, or not be written there.
    """
    resolved = lowered.resolve()
    folder = root / "model"
    if not refused_in(resolved):
        folder.symlink_to(resolved.parent, target_is_directory=True)
        return folder / resolved.name
    folder.mkdir()
    beside: tuple[Path, ...] = ()
    with contextlib.suppress(ConfigError):  # a damaged file is ATC's to refuse, in its own words
        beside = read_model(resolved).external_files
    for file in beside:
        target = folder / file.resolve().relative_to(resolved.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        # no link: ATC resolves symbolic ones, and readers of external data refuse files with several names
        shutil.copyfile(file, target)
    return Path(shutil.copyfile(resolved, folder / "model.onnx"))


# --- what went wrong: fact, value, next step, and how to see it again -------------------------------------------------


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
