"""One model rather than a sweep: calibrate it as AMCT does, compare two of its forms."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.api.device_compare import (
    FLOAT_MODEL,
    device_compare,
    free_folder,
    names_compiled,
    not_on_random,
)
from workbench.api.opening import named_candidate, opened, refuse_language_model
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import lowered_file
from workbench.evaluation.carried import calibration_feeds
from workbench.graph.read import read_model
from workbench.inputs.dataset import check_inputs, read_manifest
from workbench.inputs.experiment import Experiment
from workbench.quantization.observe import Feeds
from workbench.study.amct_command import Calibrated, calibrate_model
from workbench.study.compared import Comparison
from workbench.study.comparison import Side, engine_of, side_of
from workbench.study.comparison import compare as compare_sides
from workbench.study.limits import Limits
from workbench.study.meaning import DatasetScoring, scoring_of
from workbench.study.model_data import open_data, opened_for, random_data
from workbench.targets import REFERENCE
from workbench.values.errors import ConfigError, MeasureError

_log = logging.getLogger(__name__)


def calibrate(
    model: Path | str,
    to: Path | str,
    *,
    data: Path | str | None = None,
    cfg: Path | str | None = None,
    record: Path | str | None = None,
    constants: Sequence[str] = (),
    on_message: Callable[[str], None] = _log.info,
) -> Calibrated:
    """Quantize one model as AMCT does and write record.txt, config.json, the deploy model and a QDQ model into `to`.

    Args:
        data: an NPZ file with one array per batch, or a dataset manifest; needed unless there is a `record`.
        cfg: AMCT's simplified configuration or quantization JSON; None for AMCT's own defaults.
        record: a record file to lower as it is, without calibrating.
        constants: inputs that are the same for all samples, as NAME=VALUE.
        on_message: told in a sentence what is calibrated.

    Raises:
        ConfigError: a file is missing, damaged or does not fit the model.
        CandidateError: the model cannot be run, calibrated or lowered.
        ToolchainError: the folder cannot be written.
    """
    return calibrate_model(
        Path(model),
        Path(to),
        data=_path(data),
        cfg=_path(cfg),
        record=_path(record),
        constants=constants,
        report=on_message,
    )


def compare(
    a: Path | str,
    b: Path | str,
    *,
    data: Path | str | None = None,
    experiment: Experiment | Path | str | None = None,
    workspace: Path | str | None = None,
    samples: int | None = None,
    batch: int = 8,
    limits: Limits | None = None,
    every: bool = False,
    constants: Sequence[str] = (),
    to: Path | str | None = None,
) -> Comparison:
    """Compare two models layer by layer, A being the reference: where do their numbers part?

    Args:
        a, b: FILE or ENGINE:FILE, ENGINE one of a target's name, 'onnx' and 'deploy'; with an experiment also a
            candidate: its id or first digits, its JSON file, or 'baseline', and 'float' for its float model. B may be
            'om:SOURCE', compiled files on their device: an OM, a folder of them, a bundle, a dump that a device left,
            or a candidate.
        data: an NPZ file or a dataset manifest; random values when None. With an experiment, its validation split.
        samples, batch: so many samples at most, where the data has more, and so many in a run; a model whose batch is
            fixed gets that batch. Of compiled files one run, unless `samples` says more.
        limits: None for the usual ones: those of a float path, or of INT8 against float, by what the outputs mean where
            a manifest or an experiment tells, else by their numbers.
        every: compare what every operator computes, not only the layers; takes longer.
        constants: inputs that are the same for all samples, as NAME=VALUE; of files without an experiment.
        to: of compiled files: folder for the device's dump and for NPY files; compare-om in this folder when None.

    Raises:
        ConfigError: a file or a name is wrong, or the two share nothing to compare.
        CandidateError: an engine cannot run its model.
    """
    compiled, real = names_compiled(str(b)), data is not None or experiment is not None
    if not compiled and to is not None:
        raise ConfigError("means something for compiled files only.", key="b", hint="Name them: om:FOLDER.")
    if data is not None and experiment is not None:
        raise ConfigError("is not read beside an experiment, whose validation split is taken.", key="data")
    if samples is None:
        samples = batch if compiled else 64
    for name, number in (("samples", samples), ("batch", batch)):
        if number < 1:
            raise ConfigError(f"{number} is less than 1.", key=name)
    named = (a,) if compiled else (a, b)
    with contextlib.ExitStack() as stack:
        question: Experiment | None = None
        bench: Bench | None = None
        scoring: DatasetScoring | None = None
        if experiment is not None:
            question, bench = stack.enter_context(opened(experiment, workspace, scratch=True))
            refuse_language_model(question, "comparison of layers")
            sides = [_side(str(one), question, bench) for one in named]
            about = f"{question.name}, validation split"
            if not compiled:
                scoring = scoring_of(question.dataset, question.model, question.constraints)
                batch = question.model.fixed_batch or batch
            feeds: Iterable[Feeds] = (
                calibration_feeds(question.dataset, question.model, batch=batch, samples=samples, split="validation")
                if scoring is None
                else scoring.feeds("validation", batch, samples)
            )
        else:
            sides = _prepared_sides(
                [side_of(str(one)) for one in ((a,) if compiled else (a, b))], _path(data), constants
            )
            feeds, about, scoring = _batches(sides, _path(data), samples, batch)
        if compiled:
            return device_compare(
                sides[0],
                str(b),
                read_model(sides[0].path),
                feeds,
                data=about,
                limits=limits,
                to=_path(to) or free_folder(Path(), "compare-om"),
                random=not real,
                question=question,
                bench=bench,
            )
        try:
            return compare_sides(sides[0], sides[1], feeds, data=about, limits=limits, every=every, scoring=scoring)
        except MeasureError as error:
            if real:
                raise
            raise not_on_random(error, sides[0].path) from error


def _side(text: str, question: Experiment, bench: Bench) -> Side:
    if ":" in text or text.endswith(".onnx"):
        return side_of(text)
    if text == FLOAT_MODEL:
        return Side(about=f"{question.name} in float", engine=REFERENCE, path=question.model.path)
    candidate = named_candidate(text, question)
    engine = engine_of(candidate.target)
    file = lowered_file(question, candidate, bench)
    return Side(about=f"{candidate.short_id} in {engine}", engine=engine, path=file)


def _prepared_sides(sides: Sequence[Side], data: Path | None, constants: Sequence[str]) -> list[Side]:
    """As the workbench takes them; a lowered form of the first, which has its inputs already, as it is."""
    first = opened_for(sides[0].path, data, constants)
    models = [first]
    for side in sides[1:]:
        model = read_model(side.path)
        models.append(model if model.inputs == first.inputs else opened_for(side.path, data, constants))
    return [replace(side, path=model.path) for side, model in zip(sides, models, strict=True)]


def _batches(
    sides: Sequence[Side], data: Path | None, samples: int, batch: int
) -> tuple[Iterable[Feeds], str, DatasetScoring | None]:
    models = [read_model(side.path) for side in sides]
    batch = next((model.fixed_batch for model in models if model.fixed_batch), batch)
    if data is not None and data.suffix in (".yaml", ".yml"):
        dataset = read_manifest(data, models[0])
        check_inputs(dataset, models[0])
        scoring = scoring_of(dataset, models[0])
        if scoring is not None:
            return scoring.feeds("calibration", batch, samples), f"{data.name}, calibration split", scoring
    if data is None:
        found = random_data(models[0], batch=batch, samples=samples)
    else:
        found = open_data(data, models[0], batch=batch, samples=samples)
    return found.read(), found.about, None


def _path(given: Path | str | None) -> Path | None:
    return None if given is None else Path(given)
