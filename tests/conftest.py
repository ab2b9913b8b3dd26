"""What all tests share: MLflow keeps a database's connections for the life of the process, which a command ends."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _mlflow_lets_go_of_its_databases() -> Iterator[None]:
    """Some hundred databases of tests would take more open files than small systems give."""
    yield
    for name in ("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.model_registry.sqlalchemy_store"):
        if name in sys.modules:
            for engine in sys.modules[name].SqlAlchemyStore._engine_map.values():
                engine.dispose()
