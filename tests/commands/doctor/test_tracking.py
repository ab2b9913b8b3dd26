from pathlib import Path

import pytest

from workbench.commands.doctor.machine import tracking_findings


def test_without_a_server_nothing_is_said_of_one(tmp_path: Path) -> None:
    assert list(tracking_findings(tmp_path)) == []


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ("http://127.0.0.1:9", "MLflow's server http://127.0.0.1:9 failed: the connection was refused"),
        ("mlruns", "MLFLOW_TRACKING_URI: 'mlruns' is no address of an MLflow server"),
    ],
)
def test_a_server_that_cannot_be_used_is_a_warning_with_what_to_do(
    address: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    (finding,) = tracking_findings(tmp_path)

    assert finding.status == "warn"
    assert finding.value.startswith(value)
    assert finding.remedy
