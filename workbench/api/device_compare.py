"""What `compare` does besides two graphs: the float model against compiled files on their device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from workbench.api.opening import named_candidate
from workbench.bundle import read_bundle
from workbench.bundle.manifest import MANIFEST
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.inputs.experiment import Experiment
from workbench.quantization.observe import Feeds
from workbench.study.compared import Comparison, DeviceFindings
from workbench.study.comparison import Side, compare
from workbench.study.device_side import DeviceSide, looker, prefixes
from workbench.study.first_bad import first_bad
from workbench.study.limits import Limits
from workbench.study.model_data import RANDOM_LENGTH
from workbench.values.artifact import Artifact
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.model import Model

ARTIFACT = "artifact.json"
_FIRST_BAD = "first-bad"


def names_compiled(text: str) -> bool:
    """Whether a side is `om:SOURCE`, or what else a target calls its compiled files."""
    return text.partition(":")[0] in prefixes() and ":" in text


def device_compare(
    a: Side,
    text: str,
    model: Model,
    feeds: Iterable[Feeds],
    *,
    data: str,
    limits: Limits | None,
    to: Path,
    random: bool = False,
    question: Experiment | None = None,
    bench: Bench | None = None,
) -> Comparison:
    """Run the compiled files with everything dumped, or read what a device left; compare, and look for the cause.

    Args:
        text: om:SOURCE, SOURCE being a compiled file, a folder of them, a bundle, a dump, or a candidate.
        feeds: for a run; not read for a dump, which holds what was fed.
        to: folder of the dump and of the NPY files.
        random: the feeds are no real samples.

    Raises:
        ConfigError: the source is none of those, or of another model.
        ToolchainError, MeasureError: it cannot be run, or a dump is damaged.
    """
    prefix, _, source = text.partition(":")
    looks = looker(prefixes()[prefix])
    place = Path(source)
    if place.is_dir() and looks.is_recording(place):
        recording, data = looks.read(place, model), "what the device was fed"
    else:
        files, artifact = _compiled(source, question, bench)
        try:
            recording = looks.record(files, artifact, model, list(feeds), to)
        except MeasureError as error:
            if not random:
                raise
            raise not_on_random(error, files) from error
    device = DeviceSide(recording, model)
    mark = " (EMULATED)" if recording.emulated else ""
    b = Side(about=f"{recording.about}{mark}", engine=prefix, path=recording.folder, device=device)
    found = compare(a, b, device.feeds(), data=data, limits=limits)
    findings = DeviceFindings(
        about=recording.about,
        emulated=recording.emulated,
        operators=len(recording.calls[0].operators),
        folder=str(recording.folder),
        first_bad=first_bad(found, a, device, looks, to / _FIRST_BAD),
    )
    return replace(found, device=findings)


def not_on_random(error: MeasureError, file: Path) -> ConfigError:
    """Of a model whose data were random."""
    return ConfigError(
        f"it does not run on random values, whose free axes are all {RANDOM_LENGTH} long: {error}",
        file=file,
        key="data",
        hint="Give real samples: --data samples.npz, or a dataset manifest.",
    )


def free_folder(inside: Path, name: str) -> Path:
    """The first of NAME, NAME-2, NAME-3 … that does not exist."""
    number = 1
    while (folder := inside / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


def _compiled(source: str, question: Experiment | None, bench: Bench | None) -> tuple[Path, Artifact | None]:
    place = Path(source)
    if (place / MANIFEST).is_file():
        bundle = read_bundle(place)
        bundle.check_model()
        return bundle.model_directory, bundle.manifest.artifact
    if (place / ARTIFACT).is_file():
        try:
            return place, decode(Artifact, read_json(place / ARTIFACT))
        except DecodeError as error:
            raise ConfigError(f"no description of compiled files: {error}.", file=place / ARTIFACT) from error
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


FLOAT_MODEL = "float"
"""What the model of an experiment is called, as no target has lowered it."""
