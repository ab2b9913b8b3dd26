"""A question, and benches whose stores are empty or warm."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny import bench_of, write_workspace
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment


@pytest.fixture
def question(tmp_path: Path) -> Experiment:
    return read_experiment(write_workspace(tmp_path))


@pytest.fixture(scope="session")
def warm_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one sweep had compiled serves the next, where compiling is not what is tested."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def bench(question: Experiment) -> Iterator[Bench]:
    bench = bench_of(question)
    yield bench
    bench.store.close()


@pytest.fixture
def warm_bench(question: Experiment, warm_store: Path) -> Iterator[Bench]:
    bench = bench_of(question, warm_store)
    yield bench
    bench.store.close()
