"""How a run of the tests ends: no test reaches it with a signal, and a worker that dies is a failure told at once."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DIES = {
    "in the last test of its file, with a child that lives on": (
        """
        import os, pathlib, time
        def test_first(): pass
        def test_last():
            alive = pathlib.Path("alive")
            alive.touch()
            if os.fork() == 0:
                os.setsid()
                while alive.exists():
                    time.sleep(0.01)
            os._exit(0)
        """,
        "the process that ran dying/test_it.py::test_last died",
    ),
    "after its last test": (
        """
        import os
        class Late:
            def pytest_sessionfinish(self):
                os._exit(0)
        def test_it(pytestconfig):
            pytestconfig.pluginmanager.register(Late())
        """,
        "node down: Not properly terminated",
    ),
}


@pytest.mark.parametrize(("source", "words"), DIES.values(), ids=DIES)
def test_a_worker_that_dies_ends_the_run_as_a_failure(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "dying").mkdir()
    (tmp_path / "dying" / "test_it.py").write_text(textwrap.dedent(source))
    (tmp_path / "test_other.py").write_text("def test_other(): pass")
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    options = ["-p", "tests.conftest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}

    with (tmp_path / "said").open("w") as said:  # a pipe would be held by the child too
        code = subprocess.call(
            [*command, *options, str(tmp_path)],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=said,
            stderr=said,
            timeout=300,
        )
    (tmp_path / "alive").unlink(missing_ok=True)

    found = (tmp_path / "said").read_text()
    assert code == 1, found
    assert words in found


@pytest.mark.parametrize("group", [False, True])
def test_no_test_sends_a_signal_to_the_run(group: bool) -> None:
    send = os.killpg if group else os.kill
    for number in (0, -1, os.getpgrp(), *(() if group else (os.getpid(), os.getppid()))):
        with pytest.raises(AssertionError, match="reaches the process that runs the tests"):
            send(number, signal.SIGURG)  # which does nothing, if it is sent
    with subprocess.Popen(["/bin/sleep", "900"], start_new_session=True) as child:
        send(child.pid, signal.SIGKILL)
