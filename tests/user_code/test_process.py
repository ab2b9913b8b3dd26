import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.user_code import Opaque, UserCodeError, UserProcess, read_code
from workbench.user_code.process import SECONDS_VARIABLE
from workbench.values.errors import ConfigError

Start = Callable[..., UserProcess]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    started: list[UserProcess] = []

    def start(source: str, function: str = "f") -> UserProcess:
        (tmp_path / "mine.py").write_text(textwrap.dedent(source))
        started.append(UserProcess(read_code(tmp_path / "mine.py", function, key="metric")))
        return started[-1]

    yield start
    for process in started:
        process.close()


def failure(ask: Callable[[], Any]) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        ask()
    return caught.value


def test_values_of_every_kind_go_there_and_back_as_they_were(start: Start) -> None:
    process = start("def f(x): return x")
    arrays = [np.arange(6).astype(t).reshape(2, 3)[:, ::-1] for t in ("f2", "f4", ">i4", "u1", "?", "c8")]
    value = {
        **{str(i): array for i, array in enumerate(arrays)},
        "empty": np.zeros((0, 3), np.float32),
        "words": np.array(["ja", "nein, 你"]),
        "rest": [None, True, 2**70, 0.1, "a\ud800", (1, [b"\0x"])],
    }

    back = process.call({"x": value})

    for name, array in value.items():
        if isinstance(array, np.ndarray):
            assert back[name].dtype == array.dtype
            np.testing.assert_array_equal(back[name], array)
    assert back["rest"] == value["rest"]
    assert isinstance(start("def f(x): return f").call({"x": 0}), Opaque)


def test_a_mistake_names_file_line_and_function_of_the_users_own(start: Start, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def deep(x):\n    return {}[str(x)]\n")
    process = start(
        """
        import numpy, sys
        from helper import deep
        def f(x):
            print("looking at", x, file=sys.stderr)
            return numpy.vectorize(deep)([x]) if x else 1
        """
    )

    error = failure(lambda: process.call({"x": 3})).config("failed: {}.")

    assert str(error).startswith(f"{tmp_path}/helper.py:2: failed: KeyError: '3' (in deep).")
    assert "looking at 3 (all of it: " in str(error)
    assert process.call({"x": 0}) == 1, "it goes on after an exception"


def test_what_cannot_be_started_says_why(start: Start) -> None:
    for source, kind, words in (
        ("def g(): pass", "no function", "has no function 'f'"),
        ("import no_such_thing_at_all", "import", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "import", "SystemExit: 3"),
        ("import os\nos.abort()", "died", "was ended by SIGABRT"),
    ):
        error = failure(lambda source=source: start(source))

        assert error.kind == kind
        assert words in str(error.config())


def test_a_crash_and_a_hang_end_the_process_and_all_that_it_started(start: Start) -> None:
    code = """
        import ctypes, subprocess, time
        def f(x):
            print("about to", x)
            if x == "crash":
                ctypes.string_at(0)
            if x == "child":
                return subprocess.Popen(["sleep", "600"]).pid
            time.sleep(600)
        """
    crashed = failure(lambda: start(code).call({"x": "crash"}))
    hanging = start(code)
    child = hanging.call({"x": "child"})
    hanging._limit_s = 1.0  # from here on: neither its start nor the first answer is hurried
    hung = failure(lambda: hanging.call({"x": "hang"}))

    assert crashed.kind == "died"
    assert "SIGSEGV" in str(crashed)
    assert hung.kind == "time"
    assert "f() took more than 1 s" in str(hung.config())
    assert f"{SECONDS_VARIABLE}=N" in str(hung.config())
    assert "about to hang" in str(hung.config())
    assert not hanging.alive
    wait_until_gone(child)


def wait_until_gone(pid: int) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} lives on")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_does_not_outlive_a_workbench_that_is_interrupted_or_killed(tmp_path: Path, number: signal.Signals) -> None:
    """The workbench is a process of its own, in a group of its own: no signal of this test can reach its runner."""
    (tmp_path / "mine.py").write_text(
        "import os, subprocess, time\n"
        "def f():\n"
        "    print(os.getpid(), subprocess.Popen(['sleep', '900']).pid, file=open('pids.draft', 'w'))\n"
        "    os.rename('pids.draft', 'pids')\n"
        "    time.sleep(900)\n"
    )
    program = (
        "import sys, pathlib\nfrom workbench.user_code import process_of, read_code\n"
        "code = read_code(pathlib.Path(sys.argv[1]), 'f', key='metric')\nprocess = process_of(code)\n"
        "try:\n    process.call({})\nfinally:\n    print('alive' if process.alive else 'ended')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "mine.py")]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as workbench:
        while not (tmp_path / "pids").exists():
            assert workbench.poll() is None
            time.sleep(0.01)
        workbench.send_signal(number)
        said, errors = workbench.communicate(timeout=300)
    runner, child = map(int, (tmp_path / "pids").read_text().split())

    wait_until_gone(runner)
    if number == signal.SIGINT:
        assert (said, errors.strip().splitlines()[-1]) == ("ended\n", "KeyboardInterrupt")
        wait_until_gone(child)  # where it is told to end; a workbench that is killed cannot tell what that has started
    else:
        os.kill(child, number)
    assert workbench.returncode == -number


def test_samples_are_made_when_they_are_asked_for(start: Start, tmp_path: Path) -> None:
    process = start(
        """
        import pathlib
        def f(split):
            if split == "none":
                return None
            return (made(i) for i in range(100))
        def made(i):
            (pathlib.Path(__file__).parent / "made").write_text(str(i))
            return i
        """
    )
    first, second = process.stream("a"), process.stream("b")

    assert [next(first), next(second), next(first)] == [0, 0, 1]
    assert int((tmp_path / "made").read_text()) < 5
    assert list(second) == list(range(1, 100))
    first.close()
    assert process.stream("none") is None


def test_the_digest_covers_what_is_imported_or_named_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    files = {
        "mine.py": "from pack import inner\nimport numpy\ndef f():\n    import late\n    return open('words.txt')",
        "pack/__init__.py": "",
        "pack/inner.py": "from . import other",
        "pack/other.py": "",
        "late.py": "",
        "words.txt": "a",
        "unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def digest() -> str:
        return read_code(tmp_path / "mine.py", "f", key="metric").sha256

    first = digest()
    for name in files:
        (tmp_path / name).write_text(files[name] + "# changed")
        assert (digest() == first) == (name == "unused.py"), name
        (tmp_path / name).write_text(files[name])
    assert read_code(tmp_path / "mine.py", "f", key="metric").versions == (f"numpy {np.__version__}",)
    (tmp_path / "mine.py").write_text("def f(:")
    with pytest.raises(ConfigError, match=r"mine.py:1: metric: cannot be imported: invalid syntax"):
        digest()


def test_secrets_stay_here(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_API_KEY", "secret")

    found = start("import os\ndef f(): return dict(os.environ)").call({})

    assert "WORKBENCH_API_KEY" not in found
    assert found["PATH"] == os.environ["PATH"]
