"""Costs measured with the real service under real load. No test asks how fast this machine is."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.prediction.host_costs.data import classification
from workbench.evaluation.store import Store
from workbench.inputs.dataset import Dataset
from workbench.prediction.host_costs import measure
from workbench.prediction.host_costs.measure import host_costs, measure_host_costs, measuring_s
from workbench.targets import open_target
from workbench.values.errors import ToolchainError
from workbench.values.model import Model
from workbench.values.service import HostCosts


@pytest.fixture(scope="module")
def before() -> set[int]:
    """Processes that other tests of this one have started."""
    return {p.pid for p in psutil.Process().children(recursive=True)}


@pytest.fixture(scope="module")
def measured(before: set[int], tmp_path_factory: pytest.TempPathFactory) -> HostCosts:
    model, dataset = classification(tmp_path_factory.mktemp("data"))
    toolchain = open_target("onnxruntime").toolchain()
    return measure_host_costs(model, dataset, toolchain, clients=(1, 16), load_s=0.5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store")
    yield opened
    opened.close()


def test_what_serving_costs_is_found_and_leaves_no_process_behind(measured: HostCosts, before: set[int]) -> None:
    assert measured.client_ms > 0
    # fitted, and none of them below 0; on a machine that others disturb nothing may be left of some
    assert measured.request_ms + measured.batch_ms > 0
    assert min(measured.request_ms, measured.batch_ms, measured.worker_batch_ms, measured.worker_row_ms) >= 0
    assert measured.network_ms == 0
    assert measured.origin.startswith(f"measured on {open_target('onnxruntime').toolchain().device}, ")
    new = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    alive = [p for p in new if p.status() != psutil.STATUS_ZOMBIE]
    # the program that opens models of others belongs to whoever read a model here, and ends by itself
    started = [" ".join(p.cmdline()) for p in alive]
    assert not [words for words in started if "workbench" in words and "workbench.graph.opener" not in words]


def test_measuring_ends_in_time_and_says_what_it_left_out(tmp_path: Path) -> None:
    model, dataset = classification(tmp_path)

    costs = measure_host_costs(model, dataset, open_target("onnxruntime").toolchain(), load_s=0.2, limit_s=0.1)

    assert costs.origin.endswith("cut to 0.1 s")
    assert costs.request_ms + costs.batch_ms > 0


def test_costs_are_measured_once_for_a_workspace_and_data(tmp_path: Path, store: Store) -> None:
    asked, said = classification(tmp_path), list[str]()
    assert measuring_s(*asked, store) > 0
    first, second = (host_costs(*asked, store, report=said.append) for _ in range(2))
    assert first == second
    assert len(said) == 1
    assert measuring_s(*asked, store) == 0


def test_a_service_that_cannot_start_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, dataset = classification(tmp_path)
    written = measure.write_probe

    def damaged(to: Path, model: Model, dataset: Dataset, settings: object) -> Path:
        bundle = written(to, model, dataset, settings)
        for file in (bundle / "model").iterdir():
            file.write_bytes(b"no model")
        return bundle

    monkeypatch.setattr(measure, "write_probe", damaged)  # the real one, damaged afterwards

    with pytest.raises(ToolchainError, match="what serving costs this host cannot be measured"):
        measure_host_costs(model, dataset, open_target("onnxruntime").toolchain(), clients=(1, 2), load_s=0.2)
