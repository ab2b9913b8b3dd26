"""Which layers to keep in float, and what it costs: damage and cost of every layer and group, then measured steps.

Damage is what quantizing a unit alone does to the output. Cost is the time its kernels take in float beyond INT8: on a
device by a profile of the float and the INT8 files, fusions included; where the host computes, timed one layer at a
time on a real calibration batch, which says what a unit costs and not what a fused graph makes of it.
The steps then keep the most sensitive 0, 1, 2, 4 … units in float and evaluate each candidate as a sweep does.
"""

from __future__ import annotations

import math
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
from onnx import helper

from workbench.evaluation.bench import Bench, StageClock
from workbench.evaluation.carried import calibration_feeds
from workbench.evaluation.layer_prices import Prices, layer_prices
from workbench.evaluation.record import (
    SENSITIVITY_RECIPE,
    SENSITIVITY_SAMPLES,
    kept_in_float,
    sensitivity_of,
    statistics_of,
)
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.inputs.experiment import Experiment
from workbench.quantization.algorithms import choose
from workbench.quantization.amct.cfg import AMCT_CONFIG, parse_cfg
from workbench.quantization.amct.protobuf_text import print_message
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.observe import Feeds
from workbench.quantization.recipe import recipe_of
from workbench.quantization.record import QuantizationRecord
from workbench.quantization.sensitivity import Sensitivity, ranked
from workbench.quantization.sessions import open_session, session_on
from workbench.search.pipeline import evaluate
from workbench.targets import described
from workbench.values.candidate import Candidate, FloatUnit, Quantization, SensitivityMetric
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError
from workbench.values.metrics import metrics
from workbench.values.objectives import feasible
from workbench.values.results import Evaluation
from workbench.values.system.files import write_json_atomically, write_text_atomically

COUNTS = (0, 1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A layer or a group of layers.

    Attributes:
        damage_share: its share of the noise that all units make when each is quantized alone; what keeping it in
            float buys, in first order.
        macs_share: of the multiply-accumulates of all units, at the timed batch's length.
        int8_us, float_us: its layers' kernels with their quantization, summed (`LayerStudy.prices`).
        call_share: (float_us - int8_us) as a share of the float model's whole call: what keeping it in float costs.
    """

    sensitivity: Sensitivity
    damage_share: float
    macs_share: float
    int8_us: float
    float_us: float
    call_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A measured candidate that keeps the `kept` most sensitive units in float.

    Attributes:
        feasible: it meets every constraint of the experiment.
    """

    kept: int
    units: tuple[str, ...]
    feasible: bool
    evaluation: Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStudy:
    """The answer to "which layers do I keep in float, and what will it cost me?".

    Attributes:
        layers, groups: most sensitive first, by `metric`.
        samples: that the units were ranked with.
        float_by_recipe: layers that the recipe of the steps leaves in float by itself; no step counts them as kept.
        steps: by number of units kept; empty when nothing was measured.
    """

    experiment: str
    metric: SensitivityMetric
    unit: FloatUnit
    layers: tuple[Unit, ...]
    groups: tuple[Unit, ...]
    prices: Prices
    samples: int
    float_by_recipe: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def units(self) -> tuple[Unit, ...]:
        return self.groups if self.unit == "group" else self.layers

    @property
    def chosen(self) -> Step | None:
        """The first complete step whose accuracy cannot be told from the float model's and lies within the limits;
        None when there is none."""
        for step in self.steps:
            accuracy = step.evaluation.measurement.accuracy
            comparison = None if accuracy is None else accuracy.comparison
            if step.feasible and comparison is not None and comparison.drop_pp.low <= 0.0:
                return step
        return None

    def to_json(self) -> dict[str, Any]:
        chosen = self.chosen
        return {"version": 1, "chosen": None if chosen is None else chosen.kept, **encode(self)}


def study_layers(
    experiment: Experiment,
    bench: Bench,
    quantization: Quantization,
    *,
    metric: SensitivityMetric = "sqnr",
    unit: FloatUnit = "group",
    counts: Sequence[int] = COUNTS,
    report: Callable[[str], None] = lambda line: None,
) -> LayerStudy:
    """Rank, time and (with counts) measure.

    Args:
        quantization: the static recipe of the candidates of the steps; its `keep_float` is not looked at.
        counts: numbers of units kept in float that are measured; those beyond the model's units are left out.

    Raises:
        CandidateError: the model cannot be calibrated, or has no output for the metric 'kl'.
    """
    if not quantizable_layers(normalized(load_graph(experiment.model))):
        raise ConfigError(
            f"{experiment.model.path.name} has no layer that can be INT8, so there is nothing to rank.",
            file=experiment.path,
            key="model",
            hint="Convolutions, MatMul and Gemm are, also inside an If whose branch a declared constant decides; "
            "`workbench inspect` lists what the model is made of.",
        )
    report("observing the calibration data")
    seen = statistics_of(experiment, bench, StageClock())
    recipe = recipe_of(SENSITIVITY_RECIPE, seen.layers)
    proto = normalized(load_graph(experiment.model))
    found: dict[FloatUnit, tuple[Sensitivity, ...]] = {}
    for kind in ("layer", "group"):
        report(f"quantizing every {kind} alone")
        found[kind] = ranked(sensitivity_of(experiment, bench, seen, kind), metric)
    rows = experiment.baseline.serving.batch
    feeds = next(calibration_feeds(experiment.dataset, experiment.model, batch=rows, samples=1))
    named = {name for layer in seen.layers for name in (layer.activation, layer.second, layer.output) if name}
    wanted = sorted(named - feeds.keys())
    outputs = open_session(experiment.model, wanted).run(wanted, dict(feeds))
    values = {**dict(zip(wanted, outputs, strict=True)), **feeds}
    if described(experiment.baseline.target).profiler is not None:
        report("profiling the float and the INT8 files")
        names = [layer.name for layer in seen.layers]
        times, prices = layer_prices(experiment, bench, quantization, feeds, names)
    else:
        report("timing the kernels of every layer in float and in INT8")
        first = next(iter(feeds.values()))
        record = choose(seen, recipe, proto)
        times, call_us = host_times(experiment, proto, seen.layers, record, feeds, values)
        length = int(first.shape[1]) if first.ndim > 1 else 1
        prices = Prices(by="host", level="measured", call_us=call_us, batch=int(first.shape[0]), length=length)
    macs = {x.name: _macs(x, values[x.activation].shape, values[x.output].size) for x in seen.layers}
    tables = {kind: _units(sensitivities, times, prices.call_us, macs) for kind, sensitivities in found.items()}
    applicable = recipe_of(quantization, seen.layers).layers
    ranking = [u.sensitivity for u in tables[unit] if any(name in applicable for name in u.sensitivity.layers)]
    steps = []
    for kept in counts:
        if kept > len(ranking):
            continue
        chosen = (unit, metric) if kept else (None, None)
        recipe_kept = replace(quantization, keep_float=kept, keep_float_unit=chosen[0], sensitivity=chosen[1])
        # compile and serving settings as the baseline's
        candidate = replace(experiment.baseline, quantization=recipe_kept)
        report(f"measuring the candidate that keeps {kept} {unit}s in float")
        evaluation = evaluate(experiment, candidate, bench, gates=False)
        measured = evaluation.status == "complete"
        steps.append(
            Step(
                kept=kept,
                units=tuple(sensitivity.unit for sensitivity in ranking[:kept]),
                feasible=measured and feasible(experiment.constraints, metrics(evaluation)),
                evaluation=evaluation,
            )
        )
    return LayerStudy(
        experiment=experiment.name,
        metric=metric,
        unit=unit,
        layers=tables["layer"],
        groups=tables["group"],
        prices=prices,
        samples=min(seen.samples, SENSITIVITY_SAMPLES),
        float_by_recipe=tuple(layer.name for layer in seen.layers if layer.name not in applicable),
        steps=tuple(steps),
    )


def plain_recipe() -> Quantization:
    """Static INT8 of every layer by a constant weight: what a study is about unless a candidate is named."""
    return replace(SENSITIVITY_RECIPE, attention_matmul=False)


def write_recipe(study: LayerStudy, experiment: Experiment, bench: Bench, folder: Path) -> tuple[str, ...]:
    """Write candidate files with the AMCT configurations that skip the same layers, and say how to run them: the chosen
    step, and where a device priced the layers, those in float whose INT8 gains no time."""
    folder.mkdir(parents=True, exist_ok=True)
    seen = statistics_of(experiment, bench, StageClock())
    names = [layer.name for layer in seen.layers]

    def written(candidate: Candidate, file: str, config: str, cfg: str) -> tuple[Path, Path]:
        write_json_atomically(folder / file, candidate.to_json())
        write_text_atomically(folder / cfg, config)
        return folder / file, folder / cfg

    lines: list[str] = []
    chosen = study.chosen
    if chosen is not None:
        candidate = chosen.evaluation.candidate
        kept = kept_in_float(experiment, candidate, bench, seen)
        quantized = recipe_of(candidate.quantization, seen.layers, kept).layers
        skipped = [name for name in names if name not in quantized]
        config = print_message(AMCT_CONFIG(batch_num=2, skip_layers=skipped))
        file, cfg = written(candidate, "candidate.json", config, "amct.cfg")
        lines.append(f"run it:   workbench evaluate {experiment.path} --candidate {file}")
        lines.append(f"for AMCT: {cfg} skips the same layers ({len(skipped)} of {len(names)})")
    # by groups, whose members share their quantization
    slow = {name for unit in study.groups if unit.call_share <= 0.0 for name in unit.sensitivity.layers}
    could = [name for name in names if name not in (*study.float_by_recipe, *study.prices.unpriced)]
    gaining = [name for name in could if name not in slow]
    if study.prices.by != "device" or len(gaining) == len(could):
        return tuple(lines)
    prices = study.prices
    shape = f"batch {prices.batch}" + (f", length {prices.length}" if prices.length else "")
    fact = f"INT8 gains no time in {len(could) - len(gaining)} of {len(could)} layers ({prices.level}, {shape})"
    if not gaining:
        return (*lines, f"{fact}: at this shape the float file is the faster one.")
    skipped = [name for name in names if name not in gaining]
    quantization = without_layers(Quantization(), skipped, batches=2)
    candidate = replace(experiment.baseline, quantization=quantization)
    file, cfg = written(candidate, "priced.json", quantization.cfg or "", "priced.cfg")
    return (
        *lines,
        f"{fact}; to keep them in float: workbench evaluate {experiment.path} --candidate {file}",
        f"for AMCT: {cfg} skips them and what the recipe leaves in float ({len(skipped)} of {len(names)})",
    )


def without_layers(quantization: Quantization, skipped: Sequence[str], *, batches: int) -> Quantization:
    """INT8 by AMCT's simplified configuration that skips these layers too: the one that is followed, or else AMCT's own
    recipe over so many batches, with the symmetry and the search of ranges of this one."""
    if quantization.cfg is not None:
        config = parse_cfg(quantization.cfg).message
    else:
        config = AMCT_CONFIG(batch_num=batches, activation_offset=not quantization.activation_symmetric)
        if quantization.algorithm == "hfmg":
            config.common_config.hfmg_quantize.SetInParent()
    config.skip_layers.extend(name for name in dict.fromkeys(skipped) if name not in config.skip_layers)
    return Quantization(scheme="cfg", cfg=print_message(config), calibrator=quantization.calibrator)


def _units(
    sensitivities: Sequence[Sensitivity],
    times: Mapping[str, tuple[float, float]],
    call_us: float,
    macs: Mapping[str, int],
) -> tuple[Unit, ...]:
    noise = [10 ** (-s.sqnr_db / 10) for s in sensitivities]
    all_macs = sum(macs[name] for s in sensitivities for name in s.layers)
    units = []
    for sensitivity, own in zip(sensitivities, noise, strict=True):
        float_us = sum(times[name][0] for name in sensitivity.layers)
        int8_us = sum(times[name][1] for name in sensitivity.layers)
        units.append(
            Unit(
                sensitivity=sensitivity,
                damage_share=own / sum(noise) if sum(noise) else 0.0,
                macs_share=sum(macs[name] for name in sensitivity.layers) / all_macs if all_macs else 0.0,
                int8_us=int8_us,
                float_us=float_us,
                call_share=(float_us - int8_us) / call_us,
            )
        )
    return tuple(units)


_ROUNDS, _ROUND_S = 15, 0.004
Values = Mapping[str, npt.NDArray[Any]]


def host_times(
    experiment: Experiment,
    proto: onnx.ModelProto,
    layers: Sequence[Layer],
    record: QuantizationRecord,
    feeds: Feeds,
    values: Values,
) -> tuple[dict[str, tuple[float, float]], float]:
    """Layer of the record → (float, INT8) microseconds; and the float model's call. One thread, ONNX Runtime."""
    plain = open_session(experiment.model, [])
    (call_us,) = _fastest_us(partial(plain.run, None, dict(feeds)))
    nodes = {node.name: node for node in proto.graph.node}
    known = constants(proto)
    records = {layer.layer: layer for layer in record.layers}
    times: dict[str, tuple[float, float]] = {}
    cache: dict[tuple[object, ...], tuple[float, float]] = {}
    for layer in layers:
        if layer.name not in records:
            continue
        inputs = {name: values[name] for name in (layer.activation, layer.second) if name}
        key = (layer.op_type, layer.weight_shape, layer.transposed, layer.groups, *(v.shape for v in inputs.values()))
        if key not in cache:
            single = _alone(proto, nodes[layer.name], known, inputs)
            only = replace(record, layers=(records[layer.name],), float_layers=())
            quantized = lower_static(single, only)
            # MatMulAddFusion would turn INT8 products back into float ones
            sessions = [session_on(model, without=["MatMulAddFusion"]) for model in (single, quantized)]
            float_us, int8_us = _fastest_us(*(partial(session.run, None, dict(inputs)) for session in sessions))
            cache[key] = float_us, int8_us
        times[layer.name] = cache[key]
    return times, call_us


def _macs(layer: Layer, activation: tuple[int, ...], outputs: int) -> int:
    if layer.weight is None:
        return outputs * (activation[-1] if layer.second is not None else 1)
    if layer.op_type == "ConvTranspose":  # every input value meets Cout / groups kernels
        return math.prod(activation) * math.prod(layer.weight_shape[1:])
    assert layer.output_axis is not None
    return outputs * math.prod(layer.weight_shape) // layer.weight_shape[layer.output_axis]


def _alone(
    proto: onnx.ModelProto,
    node: onnx.NodeProto,
    known: Mapping[str, onnx.TensorProto],
    inputs: Mapping[str, npt.NDArray[Any]],
) -> onnx.ModelProto:
    """A model of this one node, with a symbolic leading axis as the real one has."""
    model = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    model.graph.name = "layer"
    model.graph.node.append(node)
    for name in (name for name in node.input if name in known):
        model.graph.initializer.add().CopyFrom(known[name])
        model.graph.initializer[-1].name = name
    shapes: dict[str, Any] = {name: ["n", *array.shape[1:]] for name, array in inputs.items()}
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    model.graph.input.extend(infos)
    model.graph.output.append(helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None))
    return model


def _fastest_us(*calls: Callable[[], object]) -> list[float]:
    """Microseconds of each: the fastest of some rounds in turns, since other work only ever adds time."""
    timers = [timeit.Timer(call) for call in calls]
    counts = [max(1, int(_ROUND_S / max(timer.repeat(2, 1)[1], 1e-7))) for timer in timers]
    each = list(zip(timers, counts, strict=True))
    rounds = [[timer.timeit(count) / count * 1e6 for timer, count in each] for _ in range(_ROUNDS)]
    return [min(column) for column in zip(*rounds, strict=True)]
