"""Two models compared layer by layer: graphs by their engines, or the float model against compiled files on their
device."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.api.opening import named_candidate, opened, refuse_language_model
from workbench.bundle.manifest import MANIFEST
from workbench.bundle.opened import read_bundle
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of, lowered_file
from workbench.evaluation.carried import calibration_feeds
from workbench.graph.read import read_model
from workbench.inputs.dataset import check_inputs, read_manifest
from workbench.inputs.experiment import Experiment
from workbench.quantization.observe import Feeds
from workbench.study.compared import Comparison, DeviceFindings, Limits
from workbench.study.comparison import Side, engine_of, side_of
from workbench.study.comparison import compare as compare_sides
from workbench.study.device_side import DeviceSide, first_bad, looker, prefixes
from workbench.study.meaning import DatasetScoring, scoring_of
from workbench.study.model_data import RANDOM_LENGTH, open_data, opened_for, random_data
from workbench.targets import REFERENCE
from workbench.values.artifact import Artifact
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError, MeasureError

_ARTIFACT = "artifact.json"


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
    prefix, colon, source = str(b).partition(":")
    compiled = bool(colon) and prefix in prefixes()
    if not compiled and to is not None:
        raise ConfigError("means something for compiled files only.", key="b", hint="Name them: om:FOLDER.")
    if data is not None and experiment is not None:
        raise ConfigError("is not read beside an experiment, whose validation split is taken.", key="data")
    if samples is None:
        samples = batch if compiled else 64
    for name, number in (("samples", samples), ("batch", batch)):
        if number < 1:
            raise ConfigError(f"{number} is less than 1.", key=name)
    real, data = data is not None or experiment is not None, None if data is None else Path(data)
    named = (a,) if compiled else (a, b)
    with contextlib.ExitStack() as stack:
        question: Experiment | None = None
        bench: Bench | None = None
        scoring: DatasetScoring | None = None
        feeds: Iterable[Feeds]
        if experiment is not None:
            question, bench = stack.enter_context(opened(experiment, workspace, scratch=True))
            refuse_language_model(question, "comparison of layers")
            sides = [_side(str(one), question, bench) for one in named]
            dataset, model, about = question.dataset, question.model, f"{question.name}, validation split"
            if not compiled:
                scoring = scoring_of(dataset, model, question.constraints)
                batch = model.fixed_batch or batch
            if scoring is None:
                feeds = calibration_feeds(dataset, model, batch=batch, samples=samples, split="validation")
            else:
                feeds = scoring.feeds("validation", batch, samples)
        else:
            sides = _prepared_sides([side_of(str(one)) for one in named], data, constants)
            feeds, about, scoring = _batches(sides, data, samples, batch)
        first, device = sides[0], None
        try:
            if compiled:
                places = (Path(f"compare-om-{number}" if number > 1 else "compare-om") for number in itertools.count(1))
                looks = looker(prefixes()[prefix])
                folder = next(place for place in places if not place.exists()) if to is None else Path(to)
                if Path(source).is_dir() and looks.is_recording(Path(source)):
                    real = True
                    recording, about = looks.read(Path(source), read_model(first.path)), "what the device was fed"
                else:
                    files, artifact = _compiled(source, question, bench)
                    recording = looks.record(files, artifact, read_model(first.path), list(feeds), folder)
                    real = True
                device = DeviceSide(recording, read_model(first.path))
                mark = " (EMULATED)" if recording.emulated else ""
                sides.append(
                    Side(about=f"{recording.about}{mark}", engine=prefix, path=recording.folder, device=device)
                )
                feeds = device.feeds()
            found = compare_sides(sides[0], sides[1], feeds, data=about, limits=limits, every=every, scoring=scoring)
        except MeasureError as error:
            if real:
                raise
            raise ConfigError(
                f"it does not run on random values, whose free axes are all {RANDOM_LENGTH} long: {error}",
                file=first.path,
                key="data",
                hint="Give real samples: --data samples.npz, or a dataset manifest.",
            ) from error
        if device is None:
            return found
        findings = DeviceFindings(
            about=recording.about,
            emulated=recording.emulated,
            operators=len(recording.calls[0].operators),
            folder=str(recording.folder),
            first_bad=first_bad(found, first, device, looks, folder / "first-bad"),
        )
        return replace(found, device=findings)


def _compiled(source: str, question: Experiment | None, bench: Bench | None) -> tuple[Path, Artifact | None]:
    place = Path(source)
    if (place / MANIFEST).is_file():
        bundle = read_bundle(place)
        bundle.check_model()
        return bundle.model_directory, bundle.manifest.artifact
    if (place / _ARTIFACT).is_file():
        try:
            return place, decode(Artifact, read_json(place / _ARTIFACT))
        except DecodeError as error:
            raise ConfigError(f"no description of compiled files: {error}.", file=place / _ARTIFACT) from error
    named = question is not None and source.endswith(".json")  # a candidate's file, and no compiled one
    if place.exists() and not named:
        return place, None
    if question is None or bench is None:
        raise ConfigError(
            "there is nothing of this name.",
            file=place,
            hint="Name a compiled file, a folder of them, a bundle, a dump, or with --experiment a candidate.",
        )
    artifact, directory = artifact_of(question, named_candidate(source, question), bench)
    return directory, artifact


def _side(text: str, question: Experiment, bench: Bench) -> Side:
    if ":" in text or text.endswith(".onnx"):
        return side_of(text)
    if text == "float":
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
