"""What all tests share: the order of their files, what children may keep, and the end of MLflow's connections."""

import gc
import os
import sys
from collections.abc import Iterator

import hypothesis
import pytest

hypothesis.settings.register_profile("shared machines", deadline=None)  # an example's time tells of the load
hypothesis.settings.load_profile("shared machines")

LONGEST = (
    *(
        "test_ascend_sweep",
        "test_ascend_refusals",
        "test_cli",
        "test_sweep",
        "test_retry",
        "test_lifecycle",
        "test_versions",
    ),
    *(
        "test_team",
        "test_tracking",
        "test_promotion",
        "test_study",
        "test_client",
        "test_export",
        "test_load_confirmation",
    ),
    *("test_build", "test_shared_shapes", "test_initialize", "test_bundle", "test_rows", "test_amct", "test_child"),
)
"""Files of tests that take a quarter of a minute or more. They begin first, so that none is left for the end, when the
other processor has nothing to do (xdist keeps this order with `--no-loadscope-reorder`)."""

for _name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
    os.environ.pop(_name, None)  # no test writes to the server of whoever runs it

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Hundreds of children import the same libraries: what the first compiles is kept for the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))


def pytest_collection_finish() -> None:
    """What the collected tests have imported stays to the end: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _mlflow_lets_go_of_its_databases() -> Iterator[None]:
    """Some hundred databases of tests would take more open files than small systems give."""
    yield
    for name in ("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.model_registry.sqlalchemy_store"):
        if name in sys.modules:
            for engine in sys.modules[name].SqlAlchemyStore._engine_map.values():
                engine.dispose()
