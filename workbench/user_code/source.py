"""What a user's file consists of, found by reading it: itself, what it imports from its folder, what it names there.

A changed helper module or word list gives other results, so all of them are in the digest that enters every key;
libraries enter by their version.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.values.documents.canonical import digest
from workbench.values.documents.input_files import is_file, read_bytes
from workbench.values.errors import ConfigError

if TYPE_CHECKING:  # a service has no reader of YAML
    from workbench.values.documents.yaml_reader import Section

MOST_SOURCE_BYTES = 1 << 24
MOST_NAMED_BYTES = 1 << 26
"""Of a file that the code names and that is digested with it; a larger one is data, which samples speak for."""
_MOST_FILES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """One function of a user's file.

    Attributes:
        key: of the manifest that names it.
        file_sha256: of the file alone.
        sha256: of the file and all that it imports or names from its folder; the file's own where there is nothing.
        versions: 'name version' of the libraries it imports, sorted.
        files: names in its folder of all that is digested, itself first.
    """

    file: Path
    function: str
    key: str
    file_sha256: str
    sha256: str
    versions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def named_code(top: Section, key: str, written: str) -> UserCode:
    """The code that a manifest names as `file.py:function`, below its folder or by an absolute path."""
    name, _, function = written.rpartition(":")
    if not name or not function.isidentifier():
        raise top.error(key, f"{written!r} is not file.py:function.")
    path = top.file.parent / name
    if not is_file(path):
        raise top.error(key, f"{path} does not exist.", "Paths are relative to this file.")
    return read_code(path, function, key=key)


def read_code(file: Path, function: str, *, key: str) -> UserCode:
    """Read a file, run nothing."""
    file = file.resolve()
    folder = file.parent
    found: dict[str, str] = {}
    libraries: set[str] = set()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(folder).as_posix()
        if name in found:
            continue
        if len(found) >= _MOST_FILES:
            raise ConfigError(f"it imports more than {_MOST_FILES} files of its folder.", file=file, key=key)
        content = read_bytes(path, limit_bytes=MOST_NAMED_BYTES)
        found[name] = hashlib.sha256(content).hexdigest()
        if path.suffix == ".py":
            tree = _tree(path, content, key)
            for module, known in _imports(tree, path, folder):
                waiting.extend(known)
                if not known:
                    libraries.add(module.partition(".")[0])
            waiting.extend(_named(tree, folder))
    own = found[file.name]
    return UserCode(
        file=file,
        function=function,
        key=key,
        file_sha256=own,
        sha256=own if len(found) == 1 else digest(found),
        versions=_versions(libraries),
        files=tuple(found),
    )


def _tree(path: Path, content: bytes, key: str) -> ast.Module:
    try:
        return ast.parse(content, filename=str(path))
    except SyntaxError as error:
        raise ConfigError(f"cannot be imported: {error.msg}.", file=path, line=error.lineno, key=key) from error
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL in it, or brackets without end
        raise ConfigError(f"cannot be imported: {error or type(error).__name__}.", file=path, key=key) from error


def _imports(tree: ast.Module, path: Path, folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """(module, its files in the folder): several, since a package's own file runs first; none for a library."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, _files(folder, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            if node.level:  # relative to the package that the file is in
                parts = [*path.relative_to(folder).parts[: -node.level], *parts]
            for alias in node.names:
                yield ".".join(parts) or alias.name, _files(folder, [*parts, alias.name])


def _files(folder: Path, parts: list[str]) -> list[Path]:
    found = []
    place = folder
    for part in parts:
        place = place / part
        for file in (place / "__init__.py", place.with_name(f"{part}.py")):
            if is_file(file) and file.stat().st_size <= MOST_SOURCE_BYTES:
                found.append(file)
                break
    return found


def _named(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """Files of the folder whose names stand in the code as strings."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 256):
            continue
        if "." not in node.value or node.value.startswith(("/", "..")) or "\n" in node.value:
            continue
        path = folder / node.value
        if is_file(path) and path.stat().st_size <= MOST_NAMED_BYTES and path.resolve().is_relative_to(folder):
            yield path.resolve()


_distributions = functools.cache(importlib.metadata.packages_distributions)
"""Module → packages of pip's; every package is looked at, once for each process."""


def _versions(modules: set[str]) -> tuple[str, ...]:
    others = {name for name in modules if name not in sys.stdlib_module_names and name not in ("workbench", "")}
    if not others:
        return ()
    distributions = _distributions()
    names = sorted({name for module in others for name in distributions.get(module, ())})
    return tuple(f"{name} {importlib.metadata.version(name)}" for name in names)
