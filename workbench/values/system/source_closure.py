"""Which of our own source files a result depends on: a module, and everything that it imports, directly or not.

Found by reading the files, not by importing them: each `import` of the workbench's own modules, in functions too (not
those for type checkers alone), the packages above a module, and what is started beside it as a program, which shows as
a string: 'x.py' for a file in the same folder, 'workbench.x' for a module. So does a table beside the module, 'x.json'
or 'x.yaml'. Libraries of others enter keys by version.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_NAME = _ROOT.name
_IMPORT = re.compile(
    rf"^[ \t]*(?:from[ \t]+({_NAME}(?:\.\w+)*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+({_NAME}\b[^\n]*))",
    re.MULTILINE,
)
_FOR_CHECKERS = re.compile(r"^if TYPE_CHECKING:.*\n(?:[ \t]+.*\n|[ \t]*\n)*", re.MULTILINE)
_DATA = re.compile(r"[\"'](\w+\.(?:json|yaml))[\"']")
_STARTED = re.compile(rf"[\"']({_NAME}(?:\.\w+)+|\w+\.py)[\"']")
_COMMENT = re.compile(r"#[^\n]*")


@functools.cache
def closure_digest(*modules: str, alone: tuple[str, ...] = ()) -> str:
    """64 hex digits over the source files that these modules consist of and depend on (see `closure`).

    Joins every key whose content depends on our own code: a changed algorithm or table never meets old results, and a
    change elsewhere keeps them.

    Args:
        alone: modules that count without what they import, such as the one that puts the others together.
    """
    hasher = hashlib.sha256()
    files = closure(*modules) | {name: _existing(name) for name in alone}
    for name, file in sorted(files.items()):
        content = _content(file)
        hasher.update(f"{name} {len(content)}\n".encode())
        hasher.update(content)
    return hasher.hexdigest()


def closure(*modules: str) -> dict[str, Path]:
    """Module name → source file; of a table its package and name → file.

    Args:
        modules: names as they are imported; of a package all its modules count. One that is no module of the workbench
            must have been imported, and counts with the whole package it belongs to.

    Raises:
        ValueError: there is no such module.
    """
    found: dict[str, Path] = {}
    waiting = [member for module in modules for member in _members(module)]
    while waiting:
        name = waiting.pop()
        file = _file(name)
        if name in found or file is None:
            continue
        found[name] = file
        if file.suffix != ".py":
            continue
        waiting += [name.rpartition(".")[0]] if "." in name else []
        waiting += _needed(name, file)
    return found


def _existing(module: str) -> Path:
    file = _file(module)
    if file is None:
        raise ValueError(f"{module} is no module of the workbench, and none that was imported")
    return file


def _members(module: str) -> list[str]:
    while not module.startswith(f"{_NAME}."):
        above = _file(module.rpartition(".")[0])
        if above is None or above.name != "__init__.py":
            break
        module = module.rpartition(".")[0]
    file = _existing(module)
    if file.name != "__init__.py" or module == _NAME:
        return [module]
    folder = file.parent
    inside = [path.relative_to(folder).with_suffix("").parts for path in sorted(folder.rglob("*.py"))]
    return [".".join((module, *(part for part in parts if part != "__init__"))) for parts in inside]


@functools.cache
def _needed(name: str, file: Path) -> tuple[str, ...]:
    text = _FOR_CHECKERS.sub("", _content(file).decode("utf-8"))
    return tuple(dict.fromkeys((*_imported(text), *_started(name, file, text))))


def _imported(text: str) -> Iterator[str]:
    for package, names, plain in _IMPORT.findall(text):
        for part in _COMMENT.sub("", names or plain).strip("() \t\n").split(","):
            member = part.split(" as ")[0].strip()
            if package:
                yield package
            if member and member != "*":
                yield f"{package}.{member}" if package else member


def _started(name: str, file: Path, text: str) -> Iterator[str]:
    if name == _NAME:
        return  # its public names stand as strings too, and each is imported when somebody asks for it
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for word in _STARTED.findall(text):
        yield f"{package}.{word.removesuffix('.py')}" if word.endswith(".py") else word
    for word in _DATA.findall(text):
        yield f"{package}.{word}"


@functools.cache
def _file(name: str) -> Path | None:
    """The source of a module, or a table (`package.x.json`); None for what is neither, such as an imported function."""
    parts = name.split(".")
    if parts[0] == _NAME:
        place = _ROOT.joinpath(*parts[1:])
        data = place.parent.with_suffix(f".{place.name}")
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py"), data):
            if file.is_file():
                return file
        return None
    path = getattr(sys.modules.get(name), "__file__", None)
    if path is not None:
        return Path(path) if path.endswith(".py") else None
    for count in range(len(parts) - 1, 0, -1):  # a module of a package that was imported
        package = getattr(sys.modules.get(".".join(parts[:count])), "__file__", None)
        if package is not None:
            place = Path(package).parent.joinpath(*parts[count:])
            found = (place / "__init__.py", place.with_name(f"{place.name}.py"))
            return next((file for file in found if file.is_file()), None)
    return None


@functools.cache
def _content(file: Path) -> bytes:
    return file.read_bytes()
