"""Which paths ATC takes, and how to stay within them.

The resolved path of every input and the literal path of the output may hold letters, digits, `.`, `/`, `_`, `-` and
Chinese characters (ge v8.5.0 base/common/util.cc:36-48,179-305); the rest ends in E10001. Chinese ones are avoided
too: the operator compiler behind ATC was never seen with them [inferred].
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from workbench.graph.read import read_model
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.scratch import scratch_folder

_REFUSED = re.compile(r"[^A-Za-z0-9./_-]")


def refused_characters(path: str) -> list[str]:
    """The characters of a path that ATC refuses, each once, sorted."""
    return sorted(set(_REFUSED.findall(path)))


def is_safe(path: Path) -> bool:
    """Whether ATC takes this path for input and output alike.

    A `.om` in a directory's name is unsafe too: the suffix of a dynamic model goes before the first one (ge v8.5.0
    base/common/helper/model_helper.cc:514-542).
    """
    resolved = path.resolve()
    return not refused_characters(str(resolved)) and ".om" not in str(resolved)


@contextlib.contextmanager
def work_directory(beside: Path, name: str) -> Iterator[Path]:
    """A new empty directory with a path that ATC takes: inside `beside`, or in the temporary folder where that has
    blanks or other characters ATC refuses. It is gone when the block ends.

    Raises:
        ToolchainError: neither can be written, or neither has a path that ATC takes.
    """
    with contextlib.ExitStack() as stack:
        yield _first_possible(beside, name, stack)


def _first_possible(beside: Path, name: str, stack: contextlib.ExitStack) -> Path:
    tried: list[str] = []
    for parent in (beside, Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp")):
        if not is_safe(parent):
            tried.append(f"{parent} (ATC refuses {refused_characters(str(parent.resolve())) or ['.om']} in a path)")
            continue
        try:  # its name has letters, digits, `.`, `-` and `_` only
            return stack.enter_context(scratch_folder(name, inside=parent))
        except OSError as error:
            tried.append(f"{parent} ({error.strerror})")
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
    if is_safe(resolved):
        folder.symlink_to(resolved.parent, target_is_directory=True)
        return folder / resolved.name
    folder.mkdir()
    for file in _external_files(resolved):
        target = folder / file.resolve().relative_to(resolved.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(file, target)
    return _copy(resolved, folder / "model.onnx")


def _external_files(model: Path) -> tuple[Path, ...]:
    try:
        return read_model(model).external_files
    except ConfigError:  # a damaged file is ATC's to refuse, in its own words
        return ()


def _copy(source: Path, target: Path) -> Path:
    # no link: ATC resolves symbolic ones, and readers of external data refuse files with several names
    shutil.copyfile(source, target)
    return target
