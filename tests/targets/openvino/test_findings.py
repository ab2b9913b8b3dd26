import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from workbench.commands.doctor.finding import exit_code
from workbench.targets.openvino.check import PINNED, openvino_findings

installed = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed; it is the extra [openvino]"
)


def test_the_version_wanted_is_the_one_the_project_pins() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["optional-dependencies"]["openvino"] == [f"openvino=={PINNED}"]


def test_without_openvino_the_machine_is_usable_and_told_how_to_get_it() -> None:
    (finding,) = openvino_findings(place_of=lambda name: None)

    assert (finding.status, finding.value) == ("warn", "not installed; it is optional")
    assert re.search(r"-m pip install -e '/\S+\[openvino\]'$", finding.remedy)
    assert exit_code([finding]) == 0


def test_an_openvino_that_cannot_be_loaded_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "openvino.py").write_text("raise ImportError('libopenvino.so is missing')")
    code = f"""\
import sys
sys.path.insert(0, {str(tmp_path)!r})
from workbench.targets.openvino.check import openvino_findings
for finding in openvino_findings():
    print(finding.status, finding.name, finding.value)
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stdout.startswith("warn usable no: OpenVINO cannot be imported: libopenvino.so is missing")
    assert len(done.stdout.splitlines()) == 1


@installed
def test_what_openvino_can_do_here_is_told() -> None:
    found = {finding.name: finding for finding in openvino_findings()}

    assert list(found) == ["usable", "version", "CPU plugin", "telemetry"]
    assert found["usable"].value.startswith("yes: a test layer")
    assert "INT8" in found["CPU plugin"].value
    assert found["telemetry"].value.startswith("blocked")
