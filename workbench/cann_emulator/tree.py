"""A CANN-shaped folder: programs, Python modules, version files and set_env.sh, where the vendor's kit has them.

    <root>/bin/{atc,aoe,npu-smi,msprof}    python/site-packages/{acl,amct_onnx}/
           share/info/<package>/version.info      opp/{version.info,scene.info,built-in/…}
           driver/version.info  firmware/version.info  etc/ascend_install.info  set_env.sh
           tools/operator_cmp/compare/msaccucmp.py

Layout: atc.md §7.1 (8.5), pyacl.md §6.5. Each version file has one line that the vendor's does not have,
`Emulator=int8-workbench <digest>`. The programs and modules start this interpreter's own `workbench.cann_emulator`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import sys
import uuid
from pathlib import Path

from workbench.cann_emulator.revision import CANN, NAME, source_digest

DRIVER_VERSION, FIRMWARE_VERSION = "25.3.rc1", "7.8.0.2.212"
"""[inferred] A driver that 8.5.0 supports, and a firmware of its time; `npu-smi info -t board` shows both."""

_SOURCE = Path(__file__).parent
_PACKAGES = ("compiler", "ge-compiler", "ge-executor", "opp", "runtime", "toolkit")
_PROGRAMS = {"aoe": "aoe", "atc": "atc", "npu-smi": "npu_smi", "msprof": "msprof"}
_MODULES = ("acl", "amct_onnx")
_AI_CORE = "opp/built-in/op_impl/ai_core/tbe"


def _emulator() -> str:
    """What every file of a tree says of itself; not asked for where only this module's versions are."""
    return f"{NAME} {source_digest()}"


def cache_folder() -> Path:
    """Where trees lie unless told otherwise, below XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "int8-workbench" / "cann-emulator"


def default_root() -> Path:
    """`<cache folder>/<digest>`; another interpreter or source is another folder."""
    key = "\0".join((source_digest(), sys.executable, str(_SOURCE)))
    return cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:12]


def write_tree(root: Path) -> Path:
    """Make the tree at `root` and return `root`, absolute.

    It appears by one rename, whole. An existing tree of this source and interpreter is kept; any other tree of the
    emulator is replaced; processes that run from either are not disturbed by a second writer.

    Raises:
        FileExistsError: something is there that this function did not write.
        OSError: no rights, no space.
    """
    root = root.expanduser().absolute()
    mark = f"{_emulator()}\n{sys.executable}\n{_SOURCE}\n{root}\n"
    if _has_mark(root, mark):
        return root
    if _is_foreign(root):
        raise FileExistsError(f"{root} exists and is no tree of the emulator; name another folder with --root")
    root.parent.mkdir(parents=True, exist_ok=True)
    draft = root.parent / f".{root.name}-{uuid.uuid4().hex[:12]}"
    try:
        _fill(draft, root)
        (draft / ".emulator").write_text(mark, encoding="utf-8")
        _put(draft, root, mark)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return root


def remove_tree(root: Path) -> bool:
    """Delete a tree; False where none is.

    Raises:
        FileExistsError: the folder is no tree of the emulator, and stays.
    """
    root = root.expanduser().absolute()
    if not root.exists():
        return False
    if not (root / ".emulator").is_file():
        raise FileExistsError(f"{root} is no tree of the emulator; nothing was deleted")
    shutil.rmtree(root)
    return True


def search_paths(root: Path) -> dict[str, tuple[Path, ...]]:
    """Variable → folders that set_env.sh puts in front of it (atc.md §7.1)."""
    return {
        "PATH": (root / "bin",),
        "LD_LIBRARY_PATH": (root / "lib64", root / "devlib"),
        "PYTHONPATH": (root / "python/site-packages", root / _AI_CORE),
    }


def variables(root: Path) -> dict[str, str]:
    """What set_env.sh sets besides the search paths (atc.md §7.1)."""
    return {
        "ASCEND_HOME_PATH": str(root),
        "ASCEND_TOOLKIT_HOME": str(root),
        "ASCEND_OPP_PATH": str(root / "opp"),
        "ASCEND_AICPU_PATH": str(root),
        "TOOLCHAIN_HOME": str(root / "toolkit"),
    }


def _has_mark(root: Path, mark: str) -> bool:
    try:
        return (root / ".emulator").read_text(encoding="utf-8") == mark
    except OSError:
        return False


def _is_foreign(root: Path) -> bool:
    """True where something lies that no tree of the emulator is; the mark is looked for last, as trees come and go."""
    try:
        full = any(root.iterdir())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True
    return full and not (root / ".emulator").is_file()


def _put(draft: Path, root: Path, mark: str) -> None:
    """Rename `draft` to `root`; where another process was faster with the same tree, its tree stays."""
    if _has_mark(root, mark):
        return
    old = root.parent / f"{draft.name}.old"
    with contextlib.suppress(FileNotFoundError):  # also where another process moved it away
        root.rename(old)
    try:
        draft.rename(root)
    except OSError:
        if not _has_mark(root, mark):
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _fill(draft: Path, root: Path) -> None:
    """Write every file into `draft`; paths inside them name `root`, where it is to lie."""
    for place in ("lib64", "devlib", "toolkit", f"{_AI_CORE}/kernel/ascend910b/ops_nn"):
        (draft / place).mkdir(parents=True)
    said = f"Emulator={_emulator()}\n"
    version = f"Version={CANN}\nversion_dir={CANN}\n{said}"
    for package in _PACKAGES:  # the second is a compatibility path (atc.md §7.1)
        _write(draft / "share/info" / package / "version.info", version)
        _write(draft / package / "version.info", version)
    arch = platform.machine()
    _write(draft / "opp/scene.info", f"os=linux\narch={arch}\n")
    install = f"package_name=Ascend-cann-toolkit\nversion={CANN}\narch={arch}\nos=linux\npath={root}\n"
    _write(draft / f"{arch}-linux/ascend_toolkit_install.info", install)
    _write(draft / "driver/version.info", f"Version={DRIVER_VERSION}\npackage_version={DRIVER_VERSION}\n{said}")
    firmware = f"Version={FIRMWARE_VERSION}\npackage_version={DRIVER_VERSION}\n{said}"
    _write(draft / "firmware/version.info", firmware)
    _write(draft / "etc/ascend_install.info", f"Driver_Install_Path_Param={root}\nFirmware_Install_Path_Param={root}\n")
    _write(draft / "set_env.sh", _set_env(root), mode=0o755)
    for program, module in _PROGRAMS.items():
        _write(draft / "bin" / program, _program(module), mode=0o755)
    _write(draft / "tools/operator_cmp/compare/msaccucmp.py", _CONVERTER.format(package=str(_SOURCE.parents[1])), 0o755)
    for module in _MODULES:
        text = _REEXPORT.format(module=module, python=sys.executable)
        _write(draft / "python/site-packages" / module / "__init__.py", text)
    # As a wheel leaves it, so that its version is found without importing it
    metadata = f"Metadata-Version: 2.1\nName: amct_onnx\nVersion: {CANN}\nSummary: {_emulator()}\n"
    _write(draft / f"python/site-packages/amct_onnx-{CANN}.dist-info/METADATA", metadata)


def _write(file: Path, text: str, mode: int = 0o644) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)


def _program(module: str) -> str:
    """As the vendor's launcher, it puts its own folders first and hands on argv and exit status (atc.md §1)."""
    return f"""\
#!/bin/sh
# {_emulator()}: an emulator, not the vendor's program
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P)
LD_LIBRARY_PATH="$root/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
PYTHONPATH={shlex.quote(str(_SOURCE.parents[1]))}:"$root/python/site-packages${{PYTHONPATH:+:$PYTHONPATH}}"
export LD_LIBRARY_PATH PYTHONPATH
exec {shlex.quote(sys.executable)} -P -m workbench.cann_emulator.{module} "$@"
"""


def _set_env(root: Path) -> str:
    lines = [f"# {_emulator()}: source me, from sh or bash"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables(root).items()]
    for name, folders in search_paths(root).items():
        front = shlex.quote(":".join(map(str, folders)))
        lines.append(f'export {name}={front}"${{{name}:+:${name}}}"')
    return "\n".join(lines) + "\n"


_CONVERTER = '''\
"""The emulator's msaccucmp.py: an emulator, not the vendor's program."""
import sys

sys.path.insert(0, {package!r})
from workbench.cann_emulator.msaccucmp import main

raise SystemExit(main(sys.argv[1:]))
'''

_REEXPORT = '''\
"""{module} of the emulator, under the vendor's name."""
import importlib as _importlib

try:
    _real = _importlib.import_module("workbench.cann_emulator.{module}")
except ModuleNotFoundError as _error:
    if _error.name != "workbench":
        raise
    raise ImportError("the emulated {module} runs in the interpreter of the workbench: {python}") from _error
globals().update({{
    _name: _value
    for _name, _value in vars(_real).items()
    if not _name.startswith("__") or _name in ("__all__", "__doc__", "__getattr__", "__dir__", "__version__")
}})
'''
