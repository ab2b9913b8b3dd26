import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from workbench.targets.ascend import installation, npu_smi
from workbench.targets.ascend.acl import calls as acl_calls
from workbench.targets.ascend.acl import process as acl_process
from workbench.targets.ascend.findings import MANAGERS, ascend_findings
from workbench.values.finding import Finding


@pytest.fixture
def acl(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The emulated pyACL in the place of the vendor's, strict about what no document covers; nothing may be left."""
    from workbench.cann_emulator import acl as emulated
    from workbench.cann_emulator.acl import errors, handles

    monkeypatch.setitem(sys.modules, "acl", emulated)
    monkeypatch.setitem(errors.STRICT, "on", True)
    yield emulated
    errors.arm("")
    acl_process.shut_down()
    acl_calls.clear_doubt()
    assert handles.left_behind() == []


CAPTURES = Path(__file__).parent / "npu_smi"
KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel"


class Host:
    """A machine built file by file; nothing of the machine that runs the test shows through."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home, self.bin = folder / "root", folder / "cann", folder / "bin"
        for place in (self.root / "dev", self.bin):
            place.mkdir(parents=True)
        self.environment = {"PATH": f"{self.bin}:/usr/bin:/bin"}

    def cann(self, version: str = "8.5.0", place: str = "share/info/runtime") -> None:
        write(
            self.home / place / "version.info",
            f"package_name=x\nVersion={version}\nversion_dir={'.'.join(version.split('.')[:3])}\n",
        )
        write(self.home / KERNELS / "ascend910b/ops_nn/x.o")
        self.environment |= {"ASCEND_HOME_PATH": str(self.home), "ASCEND_OPP_PATH": str(self.home / "opp")}

    def tool(self, place: Path, script: str) -> None:
        write(place, f"#!/bin/sh\n{script}\n").chmod(0o755)

    def npu_smi(self, info: str = "info_25_5_1", board: str = "board") -> None:
        self.tool(
            self.bin / "npu-smi",
            f'case "$*" in "info -m") cat {CAPTURES}/mapping.txt;; *board*) cat {CAPTURES}/{board}.txt;; '
            f"*common*) cat {CAPTURES}/common.txt;; info) cat {CAPTURES}/{info}.txt;; esac",
        )

    def acl(self, code: str = "def get_soc_name():\n    return 'Ascend910B3'\n") -> None:
        write(self.home / "python/acl.py", code)
        self.environment["PYTHONPATH"] = str(self.home / "python")

    def amct(self, code: str = "__version__ = '8.5.0'\nAMCT_SO = 1\n") -> None:
        write(self.home / "python/amct_onnx/__init__.py", code)
        self.environment |= {"PYTHONPATH": str(self.home / "python"), "WORKBENCH_AMCT_PYTHON": sys.executable}

    def nodes(self, *names: str) -> None:
        for name in names:
            write(self.root / "dev" / name)

    def driver(self, version: str) -> None:
        write(self.root / "etc/ascend_install.info", f"Driver_Install_Path_Param={self.root}/Ascend\n")
        write(self.root / "Ascend/driver/version.info", f"Version={version}\n")

    def ready(self) -> None:
        self.cann()
        self.tool(self.home / "bin/atc", "")
        self.npu_smi()
        self.acl()
        self.nodes("davinci0", *MANAGERS)

    def findings(self) -> dict[str, Finding]:
        """By name; of one that is told twice the trouble."""
        found = ascend_findings(self.environment, root=self.root)
        return {one.name: one for one in sorted(found, key=lambda one: one.status == "warn")}


def write(file: Path, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(npu_smi, "USUAL_PLACES", ())
    monkeypatch.setattr(installation, "DRIVER_ROOT", tmp_path / "usual")
    return Host(tmp_path)
