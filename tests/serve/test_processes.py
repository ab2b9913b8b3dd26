"""What the processes of a service import, how many there are, and what one that cannot be started leaves."""

import contextlib
import errno
import gc
import os
import resource
import sys
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.serve.making import make_bundle, running
from workbench.serve.pool import spawned

HEAVY = ("optuna", "mlflow", "ray", "torch", "sklearn", "plotly", "pandas", "transformers", "scipy")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_service_is_two_processes_beside_the_resource_tracker_and_has_mapped_none_of_their_libraries(
    tmp_path: Path,
) -> None:
    with running(make_bundle(tmp_path)) as service:
        assert service.predict({"text": "anna"}).status == 200
        mapped = {m.path for process in service.family() for m in process.memory_maps()}
        commands = [" ".join(process.cmdline()) for process in service.family()[1:]]

    assert any("onnxruntime" in path for path in mapped)
    assert not [path for path in mapped for name in HEAVY if f"/site-packages/{name}/" in path]
    assert ["resource_tracker" in command for command in sorted(commands)].count(True) == 1
    assert len(commands) == 2


def open_files() -> set[tuple[str, str]]:
    """(descriptor, what it is) of this process: a file that took the number of one closed meanwhile is told apart."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own, or closed by another thread meanwhile
            found.add((one.name, str(one.readlink())))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_cannot_be_started_leaves_no_file_open_whatever_step_failed() -> None:
    resource_tracker.ensure_running()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest, errors = os.open("/dev/null", os.O_RDONLY), list[int | None]()
    os.close(lowest)
    before = open_files()
    for spare in range(20):
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
        try:
            process, ours = spawned("worker-0", print)
        except OSError as error:
            errors.append(error.errno)
        else:
            process.kill()
            process.join()
            ours.close()
            break
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        gc.collect()
        assert open_files() <= before, f"with {spare} files to spare"
    assert {*errors} == {errno.EMFILE}
    assert len(errors) > 4
