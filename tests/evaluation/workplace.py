"""A question about the tiny encoder on its bench, with counters of what is read and made."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.tiny import EXPERIMENT, SPACE, bench_of, write_workspace
from workbench.evaluation.bench import Bench
from workbench.evaluation.record import record_of
from workbench.inputs.dataset import Batch
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.quantization.record import QuantizationRecord
from workbench.testing.encoder import ids, run, save, tiny_encoder
from workbench.values.candidate import EVERYTHING_INT8, Candidate

SAMPLES, BATCH, LENGTH = 32, 8, 9
PLAIN = EVERYTHING_INT8
CFG = """
batch_num: 3
activation_offset: true
common_config { arq_quantize { channel_wise: false } ifmr_quantize { search_step: 0.1 } }
skip_layers: "classifier"
"""


class CountedRows:
    """A split's source that counts the samples read from it."""

    def __init__(self, source: Any) -> None:
        self.source, self.count = source, 0
        self.size, self.sha256, self.sequential = source.size, source.sha256, source.sequential

    def read(self, groups: Iterable[Any], length: int | None = None) -> Iterator[Batch]:
        for batch in self.source.read(groups, length):
            self.count += len(batch)
            yield batch


class Workplace:
    """A question about the tiny encoder, its bench, and two counters."""

    def __init__(self, root: Path) -> None:
        file = write_workspace(root, experiment=EXPERIMENT, space=SPACE)
        proto = tiny_encoder()
        save(proto, root / "data" / "model.onnx")
        for seed, (split, size) in enumerate((("calibration", 40), ("validation", 40), ("holdout", 40))):
            feeds = ids(size, LENGTH, seed)
            np.savez(root / "data" / f"{split}.npz", label=run(proto, feeds)[0].argmax(axis=1), **feeds)
        experiment = read_experiment(file)
        data = experiment.dataset
        self.rows = CountedRows(data.calibration.source)
        counted = replace(data, calibration=replace(data.calibration, source=self.rows))
        self.experiment: Experiment = replace(experiment, dataset=counted)
        self.bench: Bench = bench_of(self.experiment, root / "store")

    def record(self, **changes: Any) -> QuantizationRecord:
        return record_of(
            self.experiment, Candidate(target="onnxruntime", quantization=replace(PLAIN, **changes)), self.bench
        )

    def samples_read(self, action: Callable[[], object]) -> int:
        before = self.rows.count
        action()
        return self.rows.count - before

    def entries(self, kind: str) -> int:
        return self.bench.store.usage().get(kind, (0, 0))[0]
