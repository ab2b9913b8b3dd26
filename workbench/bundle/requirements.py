"""Exactly the packages that serving a bundle imports, at the versions installed here, with the sums of their wheels.

Resolved from what each installed package declares, so that the file can be installed with `--no-deps`: the image then
holds these packages and no other, whatever was published since.

What is installed does not say which wheel it came from: pip keeps no sum of it. So a table says it, made by asking pip
which file it would take for each platform (`workbench lock`, which needs an index). The workbench ships the table of
the versions it was tested with; a bundle made with others needs a table of its own.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.bundle.bounds import LANGUAGE
from workbench.bundle.manifest import Manifest
from workbench.targets import described, descriptions
from workbench.values.documents.canonical import DecodeError, decode, encode
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.installed_targets import distributions_of
from workbench.values.system.files import write_text_atomically
from workbench.values.versions import install_command

SHIPPED = Path(__file__).with_name("serving-lock.json")
VERSION = 1
PYTHON = "3.11"
ARCHITECTURES = ("x86_64", "aarch64")
"""Hosts of cards are of both kinds."""
_GLIBC = (39, 28, 17)
"""Of the systems that serve: newer than Ubuntu 22.04 and openEuler 22.03, as old as these, and as old as wheels go."""
_OLDEST_GLIBC = 5
_TIMEOUT_S = 600.0
_NONE_FOUND = "No matching distribution found"
_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """Attributes:
    architecture: 'any' where it holds no machine code.
    """

    file: str
    sha256: str
    architecture: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Attributes:
    wheels: 'name==version' → its wheels; the name in its canonical form.
    """

    file: Path
    wheels: Mapping[str, tuple[Wheel, ...]]

    def missing(self, pins: Sequence[str]) -> tuple[str, ...]:
        """Those of which no wheel is known for one of the architectures."""
        known = {pin: {wheel.architecture for wheel in self.wheels.get(pin, ())} for pin in pins}
        return tuple(pin for pin in pins if "any" not in known[pin] and not known[pin] >= set(ARCHITECTURES))


def read_lock(file: Path = SHIPPED) -> Lock:
    """Read a table.

    Raises:
        ConfigError: there is none, or it is none.
    """
    body = read_json(file, limit_bytes=1 << 24)
    hint = "Make one with: workbench lock --to FILE"
    if not isinstance(body, dict) or body.get("version") != VERSION or not isinstance(body.get("packages"), dict):
        raise ConfigError("is no table of wheels.", file=file, key="--lock", hint=hint)
    try:
        wheels = {pin: decode(tuple[Wheel, ...], listed, pin) for pin, listed in body["packages"].items()}
    except DecodeError as error:
        raise ConfigError(f"{error}.", file=file, key="--lock", hint=hint) from error
    for pin, found in wheels.items():
        if not (_PIN.fullmatch(pin) and all(re.fullmatch("[0-9a-f]{64}", wheel.sha256) for wheel in found)):
            raise ConfigError(f"the wheels of {pin[:80]!r} are none.", file=file, key="--lock", hint=hint)
    return Lock(file=file, wheels=wheels)


def make_lock(
    pins: Sequence[str], to: Path, say: Callable[[str], None], *, newest_glibc: Sequence[int] = _GLIBC
) -> Lock:
    """Ask pip for the wheel of each pin on each platform, by the index it is configured with, and keep their sums.

    Nothing is installed.

    Args:
        newest_glibc: minor releases of glibc 2, one search each: pip takes another wheel on an older system.

    Raises:
        ToolchainError: no pip, no index, or a package without a wheel for a platform.
    """
    found: dict[str, dict[str, Wheel]] = {pin: {} for pin in pins}
    for architecture in ARCHITECTURES:
        for glibc in newest_glibc:
            say(f"{architecture}, glibc up to 2.{glibc}")
            for pin, wheel in _search(pins, architecture, glibc):
                found[pin].setdefault(wheel.file, wheel)
    lock = Lock(
        file=to,
        wheels={pin: tuple(sorted(wheels.values(), key=lambda w: w.file)) for pin, wheels in sorted(found.items())},
    )
    if missing := lock.missing(pins):
        raise ToolchainError(
            f"the index has no wheel of {', '.join(missing)} for Python {PYTHON} on {' and '.join(ARCHITECTURES)}. "
            "Build one and add it to an index of yours, or install a version that has one."
        )
    body = {"version": VERSION, "python": PYTHON, "packages": encode(lock.wheels)}
    write_text_atomically(to, json.dumps(body, indent=1, sort_keys=True) + "\n")
    return lock


def _search(pins: Sequence[str], architecture: str, glibc: int) -> Iterator[tuple[str, Wheel]]:
    """All at once; one by one where some have no wheel for so old a system."""
    report = _report(pins, architecture, glibc)
    reports = [report] if report is not None else [_report([pin], architecture, glibc) for pin in pins]
    for one in reports:
        for item in one["install"] if one is not None else ():
            from packaging.utils import canonicalize_name  # only whoever writes a bundle needs it

            pin = f"{canonicalize_name(item['metadata']['name'])}=={item['metadata']['version']}"
            file = str(item["download_info"]["url"]).rpartition("/")[2].partition("#")[0]
            sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
            yield pin, Wheel(file=file, sha256=sha256, architecture="any" if "-any.whl" in file else architecture)


def _report(pins: Sequence[str], architecture: str, glibc: int) -> Any:
    """pip's report of what it would install; None where a package has no wheel for this."""
    platforms = [f"manylinux_2_{minor}_{architecture}" for minor in range(glibc, _OLDEST_GLIBC - 1, -1)]
    platforms += [f"manylinux2014_{architecture}", f"linux_{architecture}"]
    with tempfile.TemporaryDirectory(prefix="workbench-lock-") as folder:
        file = Path(folder) / "report.json"
        command = [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--no-input"),
            *("--only-binary", ":all:", "--python-version", PYTHON, "--implementation", "cp"),
            *(part for abi in ("cp311", "abi3", "none") for part in ("--abi", abi)),
            *(part for platform in platforms for part in ("--platform", platform)),
            *("--target", str(Path(folder) / "nothing"), "--report", str(file), "--quiet", *pins),
        ]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ToolchainError(f"pip did not answer within {_TIMEOUT_S:g} s. Is its index reachable?") from error
        if done.returncode == 0:
            return json.loads(file.read_text(encoding="utf-8"))
    if _NONE_FOUND in done.stderr:
        return None
    lines = done.stderr.strip().splitlines() or ["it wrote nothing"]
    raise ToolchainError(
        f"pip cannot say which wheels it would take: {lines[-1]} See its configuration: pip config list."
    )


SERVING = (
    *("numpy", "onnx", "onnxruntime", "tokenizers", "psutil"),
    *("uvicorn", "prometheus-client", "uvloop", "httptools", "cryptography"),
)
"""What `workbench.serve`, `preprocess`, `bundle` and every target import; onnxruntime comes in with `quantization`,
and cryptography where a signature is required."""
LEFT_OUT = {"huggingface-hub": "tokenizers declares it to download tokenizers by name; a bundle carries its own file"}
"""Declared by a package above, never imported when serving."""
OURSELVES = "int8-workbench"
"""Installed from a wheel of its own, not from the list; a target of somebody else's may declare that it needs us."""


def requirements(found: Sequence[str], lock: Lock) -> str:
    """The text of requirements-serve.txt: with the sums of all wheels, or, where one is unknown, of none.

    pip takes a file with some sums for one that must have them all.

    Args:
        found: `pins`.
    """
    lines = "".join(f"# left out: {name} ({why})\n" for name, why in left_out().items())
    if missing := lock.missing(found):
        head = (
            f"# NO HASHES: the sums of {', '.join(missing)} are not in the table {lock.file.name}.\n"
            "# `workbench lock --to FILE` asks pip's index for them; then export with --lock FILE.\n"
            "# Install with --no-deps: this is the whole list.\n"
        )
        return head + lines + "".join(f"{pin}\n" for pin in found)
    head = "# Install with --no-deps --require-hashes: this is the whole list, for x86_64 and aarch64.\n"
    return head + lines + "".join(_hashed(pin, lock) for pin in found)


def pins(target: str, made_with: Mapping[str, str]) -> tuple[str, ...]:
    """'name==version' of every package that serving a bundle of a target installs, sorted.

    Args:
        made_with: component → version of the bundle's toolchain, which go before what is installed here.

    Raises:
        ToolchainError: a package is not installed here.
    """
    own = (name for name in distributions_of(target) if name != OURSELVES)
    versions = closure((*SERVING, *described(target).packages, *own))
    return tuple(f"{name}=={made_with.get(name, version)}" for name, version in sorted(versions.items()))


def serving_pins(manifest: Manifest) -> tuple[str, ...]:
    """'name==version' of every package that serving this bundle installs, sorted; none of a language model, which an
    engine of others serves.

    Raises:
        ToolchainError: one is not installed here.
    """
    if manifest.task == LANGUAGE:
        return ()
    return pins(manifest.artifact.target, manifest.artifact.toolchain.components)


def every_pin() -> tuple[str, ...]:
    """`pins` of all targets whose packages are installed here."""
    found: set[str] = set()
    for target in descriptions():
        if not target.language and all(_is_installed(name) for name in target.packages):
            found.update(pins(target.name, {}))
    return tuple(sorted(found))


def left_out() -> dict[str, str]:
    """`LEFT_OUT` and what the installed targets leave out: package → why."""
    found = dict(LEFT_OUT)
    for target in descriptions():
        found.update(target.unneeded)
    return found


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _hashed(pin: str, lock: Lock) -> str:
    lines = [pin, *(f"    --hash=sha256:{sha256}" for sha256 in sorted({w.sha256 for w in lock.wheels[pin]}))]
    return " \\\n".join(lines) + "\n"


def closure(roots: tuple[str, ...]) -> dict[str, str]:
    """Canonical name → installed version of the packages and all they need here, without `left_out`.

    Raises:
        ToolchainError: one is not installed.
    """
    from packaging.requirements import Requirement  # comes with onnxruntime; only whoever writes a bundle needs it
    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(name), frozenset()) for name in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    unneeded = {OURSELVES, *left_out()}
    while waiting:
        name, extras = waiting.pop()
        if name in unneeded or (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise ToolchainError(
                f"{name} is not installed here, so the version that serving needs is unknown. "
                f"Install the workbench again: {install_command()}"
            ) from None
        found[name] = distribution.version
        for text in distribution.requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                waiting.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return found
