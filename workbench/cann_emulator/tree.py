"""A CANN-shaped folder: programs, Python modules, version files and set_env.sh, where the vendor's kit has them.

    <root>/bin/{atc,aoe,npu-smi,msprof}    python/site-packages/{acl,amct_onnx}/
           share/info/<package>/version.info      opp/{version.info,scene.info,built-in/…}
           driver/version.info  firmware/version.info  etc/ascend_install.info  set_env.sh
           tools/operator_cmp/compare/msaccucmp.py

Layout: atc.md §7.1 (8.5), pyacl.md §6.5. Each version file has one line that the vendor's does not have,
`Emulator=int8-workbench <digest>`. The programs and modules start this interpreter's own `workbench.cann_emulator`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import sys
import uuid
from pathlib import Path

from workbench.cann_emulator.revision import CANN, NAME, source_digest
from workbench.values.system.files import lock_file

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
    if _mark(root) == mark:
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with lock_file(root.with_name(f".{root.name}.lock"), wait=True, remove=True):
        if (found := _mark(root)) == mark:
            return root
        if not found and root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise FileExistsError(f"{root} exists and is no tree of the emulator; name another folder with --root")
        draft = root.parent / f".{root.name}-{uuid.uuid4().hex[:12]}"
        try:
            _fill(draft, root, mark)
            if root.exists():
                root.rename(f"{draft}.old")
            draft.rename(root)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            shutil.rmtree(f"{draft}.old", ignore_errors=True)
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


def _mark(root: Path) -> str:
    """What a tree says of its making; "" where none is."""
    try:
        return (root / ".emulator").read_text(encoding="utf-8")
    except OSError:
        return ""


def _fill(draft: Path, root: Path, mark: str) -> None:
    """Write every file into `draft`; paths inside them name `root`, where it is to lie."""
    for place in ("lib64", "devlib", "toolkit", f"{_AI_CORE}/kernel/ascend910b/ops_nn"):
        (draft / place).mkdir(parents=True)
    said, arch = f"Emulator={_emulator()}\n", platform.machine()
    install = f"package_name=Ascend-cann-toolkit\nversion={CANN}\narch={arch}\nos=linux\npath={root}\n"
    programs = {f"bin/{program}": _program(module) for program, module in _PROGRAMS.items()}
    programs["tools/operator_cmp/compare/msaccucmp.py"] = _CONVERTER.format(package=str(_SOURCE.parents[1]))
    programs["set_env.sh"] = _set_env(root)
    files = {
        ".emulator": mark,
        # the second is a compatibility path (atc.md §7.1)
        **{
            f"{place}{package}/version.info": f"Version={CANN}\nversion_dir={CANN}\n{said}"
            for package in _PACKAGES
            for place in ("share/info/", "")
        },
        "opp/scene.info": f"os=linux\narch={arch}\n",
        f"{arch}-linux/ascend_toolkit_install.info": install,
        "driver/version.info": f"Version={DRIVER_VERSION}\npackage_version={DRIVER_VERSION}\n{said}",
        "firmware/version.info": f"Version={FIRMWARE_VERSION}\npackage_version={DRIVER_VERSION}\n{said}",
        "etc/ascend_install.info": f"Driver_Install_Path_Param={root}\nFirmware_Install_Path_Param={root}\n",
        **{
            f"python/site-packages/{module}/__init__.py": _REEXPORT.format(module=module, python=sys.executable)
            for module in _MODULES
        },
        # As a wheel leaves it, so that its version is found without importing it
        f"python/site-packages/amct_onnx-{CANN}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: amct_onnx\nVersion: {CANN}\nSummary: {_emulator()}\n"
        ),
        **programs,
    }
    for name, text in files.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_text(text, encoding="utf-8")
        (draft / name).chmod(0o755 if name in programs else 0o644)


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
