"""Records and artifacts through the store: what is derived from what, and how often the calibration data is read."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.targets.encoder import CLASSES, WEIGHT_LAYERS, ids, run, save, tiny_encoder
from tests.tiny import EXPERIMENT, SPACE, write_workspace
from workbench.evaluation.build import Bench, _handed, artifact_of, open_bench, record_of
from workbench.evaluation.journal import open_journal
from workbench.evaluation.store import Store
from workbench.graph.groups import layer_groups
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.inputs.dataset import Batch
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.quantization.amct.config import parse_config
from workbench.quantization.amct.recipe import recipe_of_config
from workbench.quantization.exact import calibrate_exactly
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.record import QuantizationRecord, read_record
from workbench.targets.ascend.atc import config_files
from workbench.values.ascend_settings import ASCEND, FUSION_GROUPS, AscendCompile
from workbench.values.candidate import Candidate, Precision, Quantization, SensitivityMetric
from workbench.values.errors import CalibrationError
from workbench.values.system import source_closure
from workbench.values.system.source_closure import closure_digest

SAMPLES, BATCH, LENGTH = 32, 8, 9
PLAIN = Quantization(
    scheme="static",
    algorithm="minmax",
    activation_symmetric=False,
    weight_granularity="channel",
    attention_matmul=True,
    keep_float=0,
)
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
        journal = open_journal(experiment.workspace, experiment.name, experiment.identity)
        self.bench: Bench = open_bench(self.experiment, journal, Store(root / "store"), lambda candidate, stage: None)

    def record(self, **changes: Any) -> QuantizationRecord:
        return record_of(self.experiment, Candidate(quantization=replace(PLAIN, **changes)), self.bench)

    def samples_read(self, action: Callable[[], object]) -> int:
        before = self.rows.count
        action()
        return self.rows.count - before

    def entries(self, kind: str) -> int:
        return {usage.kind: usage.entries for usage in self.bench.store.usage()}.get(kind, 0)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path)
    yield workplace
    workplace.bench.store.close()


def test_recipes_that_need_one_pass_share_it(work: Workplace) -> None:
    first = work.samples_read(work.record)

    later = work.samples_read(
        lambda: [
            work.record(algorithm="kl"),
            work.record(algorithm="percentile", percentile=99.9),
            work.record(algorithm="ifmr", activation_symmetric=True),
            work.record(algorithm="hfmg", weight_algorithm="arq", weight_granularity="tensor"),
            work.record(algorithm="mse", weight_algorithm="mse", attention_matmul=False),
        ]
    )

    assert (first, later) == (SAMPLES, 0)
    assert work.entries("statistics") == 1
    assert work.entries("record") == 0


def test_recipes_with_equal_balance_factors_share_a_pass_of_their_own(work: Workplace) -> None:
    work.record()

    halved = work.samples_read(lambda: [work.record(algorithm=a, balance=0.5) for a in ("mse", "kl", "ifmr")])
    other = work.samples_read(lambda: work.record(algorithm="mse", balance=0.75))

    assert (halved, other) == (SAMPLES, SAMPLES)
    assert work.entries("statistics") == 3


def test_an_automatic_strength_needs_no_pass_to_be_found(work: Workplace) -> None:
    work.record()

    read = work.samples_read(lambda: work.record(algorithm="mse", balance="auto"))

    assert read == SAMPLES
    record = work.record(algorithm="mse", balance="auto")
    assert any(layer.balance is not None for layer in record.layers)
    assert record.provenance.recipe["balance"] == "auto"


@pytest.mark.parametrize(
    "changes", [{"bias_correction": True}, {"weight_algorithm": "adaround"}], ids=["bias_correction", "adaround"]
)
def test_records_that_read_the_data_again_are_kept(work: Workplace, changes: dict[str, Any]) -> None:
    plain = work.record()

    once = work.samples_read(lambda: work.record(**changes))
    again = work.samples_read(lambda: work.record(**changes))

    assert (once, again) == (SAMPLES, 0)
    assert work.entries("record") == 1
    record = work.record(**changes)
    assert record == work.record(**changes) != plain
    for layer in record.layers:
        if layer.weight is not None:
            added = layer.bias_correction if "bias_correction" in changes else layer.weight.rounding
            assert added is not None


def test_a_kept_record_belongs_to_its_recipe_alone(work: Workplace) -> None:
    minmax = work.record(bias_correction=True)

    kl = work.record(algorithm="percentile", percentile=90.0, bias_correction=True)
    fewer = work.record(bias_correction=True, keep_float=1)

    assert work.entries("record") == 3
    assert [layer.activation for layer in kl.layers] != [layer.activation for layer in minmax.layers]
    assert len(fewer.layers) == len(minmax.layers) - 1


@pytest.mark.parametrize("metric", ["sqnr", "kl", "cosine", "first_order"])
def test_a_whole_group_stays_in_float(work: Workplace, metric: SensitivityMetric) -> None:
    record = work.record(keep_float=1, keep_float_unit="group", sensitivity=metric)

    proto = normalized(load_graph(work.experiment.model))
    layers = quantizable_layers(proto)
    groups = [set(members) for members in layer_groups(proto, layers).values()]
    assert set(record.float_layers) in groups
    assert {layer.layer for layer in record.layers} == {layer.name for layer in layers} - set(record.float_layers)


def test_rankings_by_every_metric_come_from_one_measurement_per_unit(work: Workplace) -> None:
    for metric in ("sqnr", "kl", "cosine", "first_order"):
        for unit in ("layer", "group"):
            work.record(keep_float=2, keep_float_unit=unit, sensitivity=metric)

    assert work.entries("sensitivity") == 2
    assert work.entries("statistics") == 1


def test_more_units_in_float_than_there_are_is_refused(work: Workplace) -> None:
    with pytest.raises(CalibrationError, match="20 layers are to stay in float, the model has 9"):
        work.record(keep_float=20)
    with pytest.raises(CalibrationError, match=r"20 groups are to stay in float, the model has \d\. Lower keep_float"):
        work.record(keep_float=20, keep_float_unit="group")


def test_products_that_a_recipe_leaves_alone_are_not_counted_as_kept(work: Workplace) -> None:
    record = work.record(attention_matmul=False, keep_float=len(WEIGHT_LAYERS) - 1)

    assert len(record.layers) == 1
    assert set(record.float_layers) < set(WEIGHT_LAYERS)


def test_an_amct_configuration_follows_amcts_procedure_on_its_own_batches(work: Workplace) -> None:
    candidate = Candidate(quantization=Quantization(scheme="cfg", cfg=CFG))

    before = work.rows.count
    found = record_of(work.experiment, candidate, work.bench)

    assert work.rows.count - before in (3 * BATCH, 2 * 3 * BATCH)  # IFMR: the start of the search, then the search
    recipe = recipe_of_config(
        parse_config(CFG, file="test.cfg"), quantizable_layers(normalized(load_graph(work.experiment.model)))
    )
    batches = [b.feeds for b in work.experiment.dataset.batches("calibration", BATCH, stop=3 * BATCH)]
    assert found == calibrate_exactly(work.experiment.model, lambda: iter(batches), recipe)
    assert "classifier" not in {layer.layer for layer in found.layers}
    assert work.samples_read(lambda: record_of(work.experiment, candidate, work.bench)) == 0
    assert (work.entries("statistics"), work.entries("record")) == (0, 1)


def test_a_configuration_that_asks_for_more_batches_than_there_are_is_refused(work: Workplace) -> None:
    text = CFG.replace("batch_num: 3", "batch_num: 5")

    with pytest.raises(CalibrationError, match=r"asks for 5 batches.*gives 4 of 8"):
        record_of(work.experiment, Candidate(quantization=Quantization(scheme="cfg", cfg=text)), work.bench)


@pytest.mark.parametrize(
    "quantization",
    [
        Quantization(scheme="cfg", cfg=CFG),
        replace(PLAIN, algorithm="mse", weight_algorithm="mse", balance="auto", bias_correction=True),
        replace(PLAIN, keep_float=1, keep_float_unit="group", sensitivity="kl"),
    ],
    ids=["cfg", "everything", "group in float"],
)
def test_a_record_becomes_an_artifact_that_computes_in_integers(work: Workplace, quantization: Quantization) -> None:
    candidate = Candidate(quantization=quantization)

    artifact, folder = artifact_of(work.experiment, candidate, work.bench)

    record = read_record(work.bench.journal.record(candidate.id))
    assert record == record_of(work.experiment, candidate, work.bench)
    with_weights = sum(layer.weight is not None for layer in record.layers)
    assert with_weights <= artifact.int8_ops <= len(record.layers)
    session = work.bench.target(candidate).open(artifact, folder, candidate)
    feeds = ids(16, LENGTH, 9)
    (wanted,) = run(onnx.load(work.experiment.model.path), feeds)
    found = session.run(feeds)["logits"]
    session.close()
    assert found.shape == (16, CLASSES)
    assert np.abs(found - wanted).max() < 0.15 * np.abs(wanted).max()


def test_an_artifact_is_made_again_when_a_module_it_depends_on_changed_and_kept_otherwise(
    work: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a copy of the source, as an upgrade would change it between two sweeps of one workspace."""
    source = tmp_path / "workbench"
    shutil.copytree(source_closure._ROOT, source, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(source_closure, "_ROOT", source)
    caches = (closure_digest, source_closure._needed, source_closure._file, source_closure._content)

    def made(edited: str) -> tuple[int, ...]:
        """How many new statistics, lowered and compiled models a candidate needs after a change of this file."""
        kinds = [work.bench.store.root / kind for kind in ("statistics", "lowered", "artifact")]
        if edited:
            with (source / edited).open("a") as file:
                file.write("# changed\n")
        for cached in caches:
            cached.cache_clear()
        before = [len(list(kind.glob("*/*"))) for kind in kinds]
        artifact_of(work.experiment, Candidate(quantization=PLAIN), work.bench)
        return tuple(len(list(kind.glob("*/*"))) - n for kind, n in zip(kinds, before, strict=True))

    try:
        assert made("") == (1, 1, 1)
        assert made("") == made("store.py") == made("targets/openvino.py") == made("sweep.py") == (0, 0, 0)
        assert made("targets/onnxruntime_simplify.py") == made("targets/onnxruntime_optimize.py") == (0, 1, 1)
        assert made("quantization/observe.py") == made("ascend_settings.py") == (1, 1, 1)
    finally:
        monkeypatch.undo()
        for cached in caches:
            cached.cache_clear()


def test_the_texts_of_files_that_atc_reads_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = Candidate(
        target=ASCEND,
        precision=Precision(mode="force_fp16"),
        compile=AscendCompile(disabled_fusions=("gelu",)),
    )
    before = _handed(candidate)["fusion_switch_file"]
    changed = {**FUSION_GROUPS, "gelu": replace(FUSION_GROUPS["gelu"], graph=("AnotherPass",))}
    monkeypatch.setattr(config_files, "FUSION_GROUPS", changed)
    after = _handed(candidate)["fusion_switch_file"]
    assert before != after
    assert "AnotherPass" in after[1]
    assert _handed(replace(candidate, compile=AscendCompile())) == {}
