"""What all tests share: their files' order, whom they may signal, how a run ends, the end of MLflow's connections."""

import functools
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

hypothesis.settings.register_profile(
    "shared machines",
    deadline=None,  # an example's time tells of the load
    derandomize=bool(os.environ.get("CI")),  # the same examples in each run there; new ones wherever else it is run
)
hypothesis.settings.load_profile("shared machines")

TESTS = Path(__file__).parent
LONGEST = (
    "commands/test_report_parts",
    "search/executors/ray/test_cluster",
    "test_ascend_sweep",
    "commands/test_cli",
    "test_ascend_refusals",
    "evaluation/test_overflow",
    "study/test_device_side",
    "evaluation/test_shared_store",
    "test_api",
    "search/test_several_cards",
    "targets/third_party/test_third_party",
    "search/test_predicted_sets",
    "tracking/test_versions",
    "prediction/host_costs/test_measure",
)
"""Files of tests that take longest, the longest first. They begin first, so that none is left for the end, when the
other processor has nothing to do (xdist keeps this order with `--no-loadscope-reorder`)."""

HEAVY = (
    "commands/test_report_parts",
    "search/executors/ray/test_cluster",
    "tracking/test_team",
    "tracking/test_team_registry",
    "targets/third_party/test_third_party",
    "commands/example/test_build",
    "test_docs_pictures",
    "test_notebook",
    "study/test_repair",
    "study/test_device_side",
    "test_ascend_refusals",
    "shipping/test_promotion",
    "search/test_predicted_sets",
    "evaluation/test_shared_store",
)
"""Files that start clusters, a team's servers, trainings and browsers, or whose sweeps take minutes: `make test-all`
runs them, `make test` does not."""

for _name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
    os.environ.pop(_name, None)  # no test writes to the server of whoever runs it

for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:  # of nohup or a shell's &, and children would inherit it
        signal.signal(_number, _usual)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Hundreds of children import the same libraries: what the first compiles is kept for the others."""


def reaches_the_run(number: int) -> bool:
    """Whether a signal to this process or group meets the one that runs the tests, its parents, or another's child."""
    if number <= 0 or number == os.getpgrp():
        return True
    try:
        above = [each.pid for each in psutil.Process(number).parents()]
    except psutil.NoSuchProcess:
        return False
    own = [each.pid for each in psutil.Process().parents()]
    return os.getpid() not in above and (number in own or os.getppid() in set(above) - {1})


def for_children_alone(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """`os.kill` and `os.killpg` as tests have them: a number may be 0, or have gone to somebody else meanwhile."""

    @functools.wraps(send)
    def checked(target: int, number: int) -> None:
        by_xdist = sys._getframe(1).f_globals.get("__name__") == "execnet.gateway_base"  # this process, whose run ended
        if number and not by_xdist and reaches_the_run(target):
            raise AssertionError(f"{send.__name__}({target}, {number}) reaches the process that runs the tests.")
        send(target, number)

    return checked


os.kill, os.killpg = for_children_alone(os.kill), for_children_alone(os.killpg)


def pytest_sessionstart(session: pytest.Session) -> None:
    """A child that outlives a worker does not hold the pipe by whose end xdist learns that the worker is dead."""
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            pipe = plugin.channel.gateway._io.outfile.fileno()
            os.register_at_fork(after_in_child=functools.partial(os.close, pipe))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker that dies between tests, or after its last one, is a failure too."""
    if error:
        node.config.pluginmanager.getplugin("session").testsfailed += 1


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """The run ends at once: the other workers would be given the test that killed the first."""
    pytest.exit(f"the process that ran {crashitem} died", returncode=1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if unlike := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"{unlike[0]}: the id has an address, another in every process. Name it by `ids`.")
    names = {item: os.path.relpath(item.path.with_suffix(""), TESTS) for item in items}
    for item, name in names.items():
        if name in HEAVY:
            item.add_marker(pytest.mark.heavy)
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(names[item], len(ranks)))


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


@pytest.fixture(scope="session")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a bundle of a small INT8 text classifier is made of; nobody changes its files."""
    from tests.bundle.making import text_contents

    return text_contents(tmp_path_factory.mktemp("made"))
