"""The interpreter and the compiler run one program: the same figures, to the last bit."""

import hashlib
import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from tests.prediction.simulation.services import clients, exact, poisson, served, trace_ms
from workbench.prediction.simulation import event_loop
from workbench.prediction.simulation.machine_code import is_compiled
from workbench.values.service import HostCosts

HOST = HostCosts(
    request_ms=0.2,
    batch_ms=0.1,
    worker_batch_ms=0.05,
    worker_row_ms=0.01,
    client_ms=0.1,
    transport_ms=0.3,
    network_ms=0.2,
    capacity=(1.0, 1.2),
    origin="assumed in a test",
)


def digests() -> list[str]:
    """Of services that take every branch of the event loop."""
    lengths, bins = np.arange(1, 65), (16, 32, 64)
    found = []
    for threads, workers, devices in ((1, 2, 1), (2, 2, 1), (0, 2, 2)):
        curve = exact(lambda b, n: 0.3 + 0.01 * b * n, batches=(1, 8), lengths=bins, threads=threads)
        for load in (clients(30), poisson(150), trace_ms(*np.cumsum(np.arange(200) % 7).tolist())):
            simulated = served(
                curve,
                load,
                max_batch_size=8,
                batch_timeout_ms=2.0,
                workers=workers,
                devices=devices,
                host=HOST,
                lengths=lengths,
                bins=bins,
                requests=300,
            )
            parts = (simulated.latency_ms, simulated.answered_ms, simulated.batch_rows.astype(np.float64))
            shares = (simulated.padding_share, simulated.worker_busy, simulated.processors_busy)
            found.append(hashlib.sha256(b"".join(p.tobytes() for p in parts) + repr(shares).encode()).hexdigest())
    return found


@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="numba is not installed: nothing to compare")
def test_interpreted_services_are_the_compiled_ones_and_say_once_that_they_are_slow() -> None:
    code = (
        "import sys, logging\n"
        "sys.modules['numba'] = None\n"
        "logging.basicConfig(stream=sys.stderr, format='%(levelname)s %(message)s')\n"
        "from tests.prediction.simulation.test_machine_code import digests\n"
        "print('\\n'.join(digests()))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert is_compiled(event_loop.run)
    assert done.stdout.split() == digests()
    assert done.stderr.count("numba is not installed") == 1


def test_numba_is_imported_only_when_a_service_is_simulated() -> None:
    code = "import sys, workbench.prediction.search\nprint('numba' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert done.stdout.strip() == "False"
