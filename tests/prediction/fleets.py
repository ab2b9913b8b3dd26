"""Evaluations with batch curves made by hand, for tests of what a fleet of them would do."""

from dataclasses import replace

from tests.evaluations import evaluation, figures
from tests.prediction.simulation.services import exact
from workbench.values.measurement import ServiceResult
from workbench.values.results import Evaluation
from workbench.values.service import HostCosts

HOST = HostCosts(request_ms=0.01, capacity=(1.0, 2.0, 3.0, 4.0), client_ms=5.0, origin="assumed in a test")


def served(call_ms: dict[int, float], *, host: HostCosts = HOST, **changes: object) -> Evaluation:
    """Args: call_ms: batch → time of a call, always the same."""
    found, known = evaluation(threads=1), replace(figures(100.0, 40.0), host=host)
    service = ServiceResult(
        curve=exact(lambda batch, _: call_ms[batch], batches=tuple(call_ms)),
        best=known,
        closest=known,
        untuned=known,
        tried=3,
    )
    return replace(found, measurement=replace(found.measurement, service=service, **changes))
