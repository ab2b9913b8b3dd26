"""What a bundle made on an emulated device would do under a baseline's loads: a rehearsal of a verdict.

Loads of such a service measure the emulator on this host. The times of calls that the device's model gave, which the
bundle holds, are simulated as the sweep simulated them; every figure is modelled, says so, and has the interval of
what modelled times are off by.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.commands.loading import dataset_of

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.bundle import Bundle
    from workbench.shipping.acceptance import Baseline, LoadFigures

_REQUESTS = 20_000


def modelled_loads(bundle: Bundle, against: Baseline, data: Path | None, experiment: Path | None) -> list[LoadFigures]:
    """One for each load of the baseline that the bundle's bins can serve, one sample a request.

    Texts of their own lengths are those of the experiment or the dataset; without one such loads are left out, and for
    a model of arrays so are those of a length. Empty where the sweep measured no curve of the service.
    """
    import numpy as np

    from workbench.prediction.other_clocks import with_other_clocks
    from workbench.prediction.simulation import figures, simulate
    from workbench.shipping.acceptance import of_prediction
    from workbench.values.service import ServiceLoad

    manifest = bundle.manifest
    measurement = next((e.measurement for e in reversed(manifest.evaluations) if e.measurement.service), None)
    service = measurement.service if measurement is not None else None
    predicted = (service.best or service.closest) if service is not None else None
    if measurement is None or service is None or predicted is None or predicted.host is None:
        return []
    bins = manifest.service.sequence_bins or (manifest.text.bins if manifest.text is not None else ())
    if manifest.text is None:  # arrays of one size have no lengths
        bins = ()
    chosen = dataset_of(data, experiment)
    own = chosen[0].lengths("validation") if chosen is not None else None
    if manifest.text is None:
        own = np.zeros(1, dtype=np.int64)
    memory = measurement.device.memory_bytes * manifest.service.workers if measurement.device is not None else None
    found = []
    for theirs in against.loads:
        lengths = own if theirs.length is None else np.full(1, theirs.length, dtype=np.int64)
        unmet = manifest.text is None and theirs.length is not None
        if unmet or theirs.batch > 1 or lengths is None or (bins and int(lengths.max()) > bins[-1]):
            continue
        load = ServiceLoad(concurrency=theirs.concurrency)
        curve = service.curve
        simulated = simulate(
            curve, manifest.service, load, predicted.host, lengths, bins, devices=1, requests=_REQUESTS, seed=0
        )
        shown = with_other_clocks(service, figures(simulated), predicted.host, lengths, bins, seed=0)
        found.append(of_prediction(shown, theirs.length, service_memory=memory))
    return found
