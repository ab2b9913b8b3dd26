"""Experiment: one file, one reproducible question. Reading it checks everything that can be checked before work."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.graph.door import open_foreign
from workbench.graph.intake.prepared import prepared, workspace_folder
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.inputs.dataset.interface_reader import read_interface
from workbench.inputs.dataset.language import read_language_manifest
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.scorer import output_constraints
from workbench.space.dimensions import TARGET
from workbench.space.reader import read_space, read_targets
from workbench.space.served_bins import finest, to_service, with_lengths
from workbench.space.service_reader import read_question
from workbench.space.space import Forbidden, SearchSpace, build, complete
from workbench.targets import described, descriptions, open_target
from workbench.targets.base import computes_in_float32
from workbench.targets.language import language_target
from workbench.values.candidate import Candidate
from workbench.values.dimension import MOST_BATCH
from workbench.values.documents.canonical import digest, encode
from workbench.values.documents.yaml_reader import Section, is_pipeline, read_yaml
from workbench.values.errors import ConfigError, nearest
from workbench.values.measurement import LanguageLoad, Split, current_name, former_name
from workbench.values.metrics import FLOAT_INDEX_LOSS, LOSSES, METRICS, loss_metric
from workbench.values.model import Model
from workbench.values.objectives import Constraint, Objective
from workbench.values.preprocess import LONGEST_TEXT
from workbench.values.sequential import WhenUndecided
from workbench.values.service import ServiceQuestion

_log = logging.getLogger(__name__)

CompileFirst = Literal["deferred", "all"]
Sampler = Literal["auto", "random"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How much of the calibration split is observed, in batches of how many samples."""

    samples: int = 128
    batch: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """How long candidates are timed.

    Attributes:
        calls: timed calls of a full measurement; below 1000 no P99 is reported.
        short_calls: timed calls of the gate before it.
        feeds: distinct batches that are timed, drawn with the dataset's own lengths. Few of them make the speed-up
            depend on the draw: what a second thread gains, for one, depends on the length.
        length: time at this one padded length instead of the natural spread; None for the spread.
    """

    calls: int = 1000
    short_calls: int = 100
    feeds: int = 256
    length: int | None = None


FEWEST_SAMPLES = 50
"""Of a split that is cut short; windows of a language model hold hundreds of predictions each, and may be fewer."""
MOST_TRIALS = 1_000_000
MOST_CALLS = 10_000_000
LARGEST_SEED = 2**32 - 1
"""NumPy's random state takes no more."""
LOAD = "load"
_MOST_TOKENS = 1 << 24
_OF_SERVICES = ("service_", "latency_", "throughput_", "speedup", "startup_s", "peak_memory_mb", "int8_ops", "float_")
"""Metrics that nothing measures of a language model: its times are modelled, under names of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The parsed question: every path absolute, every referenced file read and checked.

    Attributes:
        workspace: folder with `.workbench/` (cache, journal) and `mlruns/`.
        targets: what executes candidates; the baseline runs on the first.
        smoke_cosine: least cosine with the float output over the smoke samples, for any candidate.
        service: for what load each candidate's best service settings are found; None for no service.
        load: what a language model is asked to do, for its modelled times; None of any other model.
        device: kind of device that answers are for, by its vendor's name; empty for the one that is there.
        compile: where every shape is a compile of its own, 'deferred' compiles few shapes of a candidate, predicts the
            rest, and compiles all of those alone that may be on the front; 'all' compiles every candidate whole.
    """

    name: str
    about: str
    path: Path
    workspace: Path
    targets: tuple[str, ...]
    model: Model
    dataset: Dataset
    space: SearchSpace
    calibration: CalibrationSettings
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    trials: int
    timeout_s: float
    measure: MeasureSettings
    smoke_cosine: float
    sampler: Sampler
    seed: int
    service: ServiceQuestion | None = None
    load: LanguageLoad | None = None
    device: str = ""
    compile: CompileFirst = "deferred"

    @property
    def identity(self) -> str:
        """64 hex digits over all that decides what a number of this experiment means (not its budget or seed)."""
        return digest(
            {
                "name": self.name,
                "targets": self.targets,
                "model": self.model.sha256,
                "dataset": self.dataset.identity,
                "space": self.space.digest,
                "calibration": self.calibration,
                "objectives": [encode(each) | {"metric": former_name(each.metric)} for each in self.objectives],
                "constraints": [encode(each) | {"metric": former_name(each.metric)} for each in self.constraints],
                "measure": self.measure,
                "smoke_cosine": self.smoke_cosine,
                "service": self.service,
                # accuracy is said against float32, which such a baseline is not: figures against it mean another thing
                **({} if self.load is None else {"load": self.load}),
                **({"device": self.device} if self.device else {}),
                **({} if computes_in_float32(self.baseline) else {"accuracy against": "float32"}),
            }
        )

    @property
    def baseline(self) -> Candidate:
        """The float candidate everything is compared with: the space's defaults with quantization off."""
        return build(self.space, self.baseline_assignment)

    @property
    def baseline_assignment(self) -> dict[str, str | int | float | bool | None]:
        return complete(self.space, {"quantization.scheme": "none"})


def workspace_of(file: Path) -> Path:
    """The folder whose `experiments/` holds the file, else the file's own folder."""
    folder = file.resolve().parent
    return folder.parent if folder.name == "experiments" else folder


def read_experiment(path: Path, workspace: Path | None = None) -> Experiment:
    """Read an experiment file and everything it refers to.

    Raises:
        ConfigError: in this file, the dataset manifest, the search space, the data or the model.
    """
    if is_pipeline(path):
        hint = "Of a pipeline there are sweep, plan, show, export and load --experiment; each of its stages has an "
        hint += "experiment of its own below .workbench/pipelines/ once it was planned."
        raise ConfigError("is a pipeline, and an experiment of one model is asked for.", file=path, hint=hint)
    with read_yaml(path) as top:
        name = top.name("name")
        if not name or any(c in name for c in "/\\ \t\n:") or name.startswith("."):
            top.refuse("name", f"{name!r} cannot name a folder.", "Use letters, digits, '-', '_' and '.'.")
        about = top.text("about", "")
        targets = None
        if top.has(TARGET):
            with top.attempt():
                targets = read_targets(top)
        model_path = top.file_path("model", must_exist=False)
        dataset_path, space_path = top.file_path("dataset"), top.file_path("search_space")
        with top.section("calibration") as section:
            calibration = CalibrationSettings(
                samples=section.integer("samples", 128, minimum=1),
                batch=section.integer("batch", 8, minimum=1, maximum=MOST_BATCH),
            )
        with top.section("validation") as section:
            scored = section.optional("samples", lambda key: section.integer(key, minimum=1))
        with top.section("holdout") as section:
            confirmed = section.optional("samples", lambda key: section.integer(key, minimum=1))
        objectives = _objectives(top)
        with top.section("constraints") as section:
            limits = {_current(top, metric): read_limit(section, metric) for metric in section.names()}
            for metric in limits.keys() - METRICS:
                section.refuse(metric, "not a metric.", nearest(metric, METRICS))
            constraints = tuple(Constraint(metric=m, **limits[m]) for m in limits if m in METRICS)
        with top.section("budget") as section:
            trials = section.integer("trials", 40, minimum=1, maximum=MOST_TRIALS)
            timeout_s = section.seconds("timeout", 24 * 3600.0)
        with top.section("measure") as section:
            measure = MeasureSettings(
                calls=section.integer("calls", 1000, minimum=20, maximum=MOST_CALLS),
                short_calls=section.integer("short_calls", 100, minimum=20, maximum=MOST_CALLS),
                feeds=section.integer("feeds", 256, minimum=1, maximum=MOST_CALLS),
                length=section.optional("length", lambda key: section.integer(key, minimum=1, maximum=LONGEST_TEXT)),
            )
        service = None
        with top.attempt():
            service = read_question(top)
        load = _load(top)
        smoke_cosine = top.number("smoke_cosine", 0.9, minimum=-1.0, maximum=1.0)
        sampler = _renamed(top, "sampler", "auto", get_args(Sampler))
        compile_first = _renamed(top, "compile", "deferred", ("deferred", "all"))
        if top.has("warm_start"):
            _log.warning("%s: `warm_start` is not read any more; leave it out.", path)
        seed = top.integer("seed", 0, minimum=0, maximum=LARGEST_SEED)
        devices = _devices(top)
        if not model_path.exists():
            top.refuse("model", f"{model_path} does not exist.", _model_hint(model_path))
    space = read_space(space_path)
    if targets is not None and targets != space.targets:
        raise top.error(
            TARGET,
            f"{' and '.join(targets)} is not what {space_path} is for ({' and '.join(space.targets)}).",
            "Leave the key out, or name the space's targets in its order.",
        )
    device = _choose_device(top, devices, space)
    asked = [(each.metric, top, "objectives") for each in objectives]
    asked += [(each.metric, top.section("constraints"), each.metric) for each in constraints]
    _check_service(top, service, space, asked)
    if service is not None and service.p99_ms is not None and all(c.metric != "service_p99_ms" for c in constraints):
        constraints += (Constraint(metric="service_p99_ms", limit=service.p99_ms),)
    root = (workspace or workspace_of(path)).resolve()
    language = described(space.targets[0]).language
    if language:
        model, dataset = _language_question(top, space, model_path, dataset_path, asked)
    else:
        _check_graph_question(top, space, model_path, scored, confirmed)
        model = prepared(
            open_foreign(model_path), read_interface(dataset_path), workspace_folder(root), declared_in=dataset_path
        )
        dataset = read_manifest(dataset_path, model)
        _check_primary_limits(asked, dataset, model)
        constraints += output_constraints(dataset, model)
    text = dataset.preprocessor
    space = with_lengths(space, dataset.length_sample, None if text is None else text.max_length)
    if service is not None and text is not None:
        space = to_service(space, text.bins)
        dataset = dataset.with_bins(finest(space, dataset.length_sample()))  # for all that is no service: least padding
    _check_baseline(space)  # which needs the lengths that words such as "optimal 4" stand for
    counts: tuple[tuple[Split, int | None], ...] = (("validation", scored), ("holdout", confirmed))
    for split, count in counts:
        if count is not None and count > dataset.size(split):
            raise top.section(split).error(
                "samples", f"{count} is more than the {dataset.size(split)} samples of the split.", "Lower it."
            )
    dataset = dataset.first(validation=scored, holdout=confirmed)
    if model.fixed_batch is not None:  # it takes no other
        calibration = replace(calibration, batch=model.fixed_batch)
    if dataset.size("calibration") < calibration.samples:
        raise top.section("calibration").error(
            "samples",
            f"{calibration.samples} is more than the {dataset.size('calibration')} samples of the calibration split.",
            f"Lower it or add samples to {dataset_path}.",
        )
    return Experiment(
        name=name,
        about=about,
        path=top.file,
        workspace=root,
        targets=space.targets,
        model=model,
        dataset=dataset,
        space=space,
        calibration=calibration,
        objectives=objectives,
        constraints=constraints,
        trials=trials,
        timeout_s=timeout_s,
        measure=measure,
        smoke_cosine=smoke_cosine,
        sampler=sampler,  # type: ignore[arg-type]  # checked against the Literal's own values above
        seed=seed,
        service=service,
        load=(load or LanguageLoad()) if language else None,
        device=device,
        compile=compile_first,  # type: ignore[arg-type]  # checked, as the sampler is
    )


def read_limit(constraints: Section, metric: str) -> dict[str, Any]:
    """`0.5`; of a loss also `{limit: 0.5, zone: 0.2, undecided: refuse}`, the zone in the unit of the limit."""
    if current_name(metric) not in LOSSES or not isinstance(constraints.raw(metric), dict):
        return {"limit": constraints.number(metric)}
    with constraints.section(metric) as section:
        return {
            "limit": section.number("limit"),
            "zone": section.optional("zone", lambda key: section.number(key, minimum=0.0)),
            "undecided": section.optional("undecided", lambda key: section.text(key, choices=get_args(WhenUndecided))),
        }


_EARLIER = {"parts": "auto", "tpe": "auto", "gp": "auto", "nsga2": "auto", "promising": "deferred"}
"""Words of before, read for one version."""


def _renamed(top: Section, key: str, default: str, choices: Sequence[str]) -> str:
    value = top.text(key, default, choices=(*choices, *(old for old, new in _EARLIER.items() if new in choices)))
    if value in _EARLIER:
        _log.warning("%s: `%s: %s` is read as `%s`; write that.", top.file, key, value, _EARLIER[value])
    return _EARLIER.get(value, value)


def _current(top: Section, metric: str) -> str:
    name = current_name(metric)
    if name != metric:
        _log.warning("%s: `%s` is called `%s` now; write that.", top.file, metric, name)
    return name


def _devices(top: Section) -> dict[str, str]:
    """Target → the kind of device that the experiment names for it."""
    found = {}
    for target in descriptions():
        section, key = target.chosen_by
        if section and top.has(section):
            with top.section(section) as named:
                found[target.name] = named.name(key)
    return found


def _choose_device(top: Section, devices: Mapping[str, str], space: SearchSpace) -> str:
    """The kind of device; empty where none is named, and what an experiment read before has chosen is taken back."""
    for target in devices.keys() - set(space.targets):
        section, _ = described(target).chosen_by
        raise top.error(section, f"{' and '.join(space.targets)} has no such device.", "Leave the section out.")
    for target in space.targets:
        section, key = described(target).chosen_by
        try:
            described(target).choose(devices.get(target, ""))
        except ConfigError as error:
            raise (top.section(section).error(key, error.rule, error.hint) if target in devices else error) from error
    return next(iter(devices.values()), "")


def _check_graph_question(
    top: Section, space: SearchSpace, model: Path, scored: int | None, confirmed: int | None
) -> None:
    """What only experiments of language models may say, and those of ONNX files may not."""
    if top.has(LOAD):
        raise top.error(LOAD, f"{space.targets[0]} takes ONNX files, of which no tokens are decoded.", "Leave it out.")
    if model.is_dir():
        raise top.error(
            "model",
            f"{model} is a folder, and {space.targets[0]} takes ONNX files.",
            "A search space for a language model names a target for one, as search_spaces/ascend-llm.yaml does.",
        )
    for split, count in (("validation", scored), ("holdout", confirmed)):
        if count is not None and count < FEWEST_SAMPLES:
            raise top.section(split).error("samples", f"{count} is less than {FEWEST_SAMPLES}.")


def _check_baseline(space: SearchSpace) -> None:
    """Everything is compared with the float model at the space's defaults, whether or not the space proposes it."""
    try:
        build(space, complete(space, {"quantization.scheme": "none"}))
    except Forbidden as error:
        raise ConfigError(
            f"the float baseline cannot be built from its defaults: {error}.",
            file=space.path,
            key="parameters",
            hint="Settings that only INT8 has need a condition: when: {quantization.scheme: [static]}.",
        ) from error


def _check_service(
    top: Section, service: ServiceQuestion | None, space: SearchSpace, asked: Iterable[tuple[str, Section, str]]
) -> None:
    """A service is searched for where the experiment says for what load, and the space what may be told to it."""
    if service is not None and space.service is None:
        raise top.error(
            "service",
            f"{space.path} does not say which service settings there are.",
            "Write service: {max_batch_size: [1, 8], batch_timeout_ms: [0, 2], workers: [1]} in it.",
        )
    for metric, section, place in asked:
        if metric.startswith("service_") and service is None:
            rule = f"{metric} needs to know how requests come."
            raise section.error(place, rule, "Write service: {concurrency: 100, p99_ms: 50} in this file.")


def _objectives(top: Section) -> tuple[Objective, ...]:
    names = [_current(top, name) for name in top.texts("objectives", ("latency_p50_ms", "accuracy"))]
    if not names or len(names) > 3 or len(set(names)) != len(names):
        top.refuse("objectives", f"{list(names)} must be one to three different metrics.")
    for name in names:
        if name not in METRICS:
            top.refuse("objectives", f"{name!r} is not a metric.", nearest(name, METRICS))
    return tuple(Objective(metric=name) for name in names if name in METRICS)


def _model_hint(path: Path) -> str:
    if ".workbench/examples" in path.as_posix():
        return f"Build it with: workbench example {path.parent.name}"
    if ".workbench/real-models" in path.as_posix():
        return "experiments/models.md says with which package and which command it comes."
    return "Paths are relative to this file."


def _check_primary_limits(asked: Iterable[tuple[str, Section, str]], dataset: Dataset, model: Model) -> None:
    """Refuse a drop in percentage points of a metric in decibels, and the like."""
    scorer = scorer_of(dataset, model)
    primary, unit = scorer.primary, scorer.unit
    right = loss_metric(unit)
    for name, section, place in asked:
        if name == FLOAT_INDEX_LOSS and (dataset.retrieval is None or dataset.retrieval.candidates):
            raise section.error(
                place, "no index is searched.", f"Name a corpus under retrieval in {dataset.path.name}."
            )
        if name in {"accuracy_loss", "accuracy_loss_pp"} - {right}:
            said = f"the primary metric {primary} is " + (f"in {unit}." if unit else "a share of 0..1.")
            raise section.error(place, said, f"Write {right}, {f'in {unit}' if unit else 'in percentage points'}.")
        if name == place == "accuracy" and not scorer.higher:
            raise section.error(place, f"{primary} is better when it is less.", f"Limit {right} instead.")


# --- language models: a folder, texts, and what times are modelled for ---------------------------------------------


def _load(top: Section) -> LanguageLoad | None:
    """`load: {batch: 8, prompt: 512, context: 2048}`; None where the file says nothing of it."""
    if not top.has(LOAD):
        return None
    usual = LanguageLoad()
    with top.section(LOAD) as section:
        batch = section.integer("batch", usual.batch, minimum=1, maximum=MOST_BATCH)
        prompt = section.integer("prompt", usual.prompt, minimum=1, maximum=_MOST_TOKENS)
        context = section.integer("context", max(usual.context, prompt), minimum=1, maximum=_MOST_TOKENS)
    return LanguageLoad(batch=batch, prompt=prompt, context=context)


def _language_question(
    top: Section, space: SearchSpace, folder: Path, manifest: Path, asked: Iterable[tuple[str, Section, str]]
) -> tuple[Model, Dataset]:
    """Model and texts.

    Args:
        asked: metric of an objective or a constraint, and where it stands.

    Raises:
        ConfigError: the folder, the manifest or a text is wrong, or the experiment asks for what nobody can measure.
        ToolchainError: the packages for language models are not installed.
    """
    if len(space.targets) > 1:
        raise top.error("search_space", f"{space.path} is for several targets; a language model is searched for one.")
    if top.has("service"):
        raise top.error("service", "a language model's service is not searched.", "Leave it out; see `load`.")
    target = language_target(open_target(space.targets[0]))
    model = target.read_model(folder)
    dataset = read_language_manifest(manifest, model, target)
    other = {"perplexity": "kl", "kl": "perplexity"}[dataset.measure]
    for name, section, place in asked:
        if name == other:
            rule = f"{manifest.name} is measured by {dataset.measure}."
            raise section.error(place, rule, f"Write measure: {name} there.")
        if name == "accuracy_loss_pp":
            unit = "in percent of the perplexity" if dataset.measure == "perplexity" else "in nats"
            raise section.error(place, f"{dataset.measure} is no share of 0..1.", f"Write accuracy_loss, {unit}.")
        if name.startswith(_OF_SERVICES):
            hint = "Write perplexity, size_mb, prefill_ms, decode_ms or kv_kb_per_token."
            raise section.error(place, f"{name} is not measured of a language model.", hint)
    return model, dataset
