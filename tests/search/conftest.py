"""A question, and benches whose stores are empty or warm."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.search.sweeping import silent
from tests.tiny import write_workspace
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
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
    journal = open_journal(question.workspace, question.name, question.identity)
    store = Store(question.workspace / ".workbench" / "store")
    yield open_bench(question, journal, store, silent)
    store.close()


@pytest.fixture
def warm_bench(question: Experiment, warm_store: Path) -> Iterator[Bench]:
    journal = open_journal(question.workspace, question.name, question.identity)
    store = Store(warm_store)
    yield open_bench(question, journal, store, silent)
    store.close()
