"""What an experiment is made of, put into a shared store and laid out again on another machine.

    name = publish_inputs(experiment, shared)                      # here
    file = materialize_inputs(shared, name, workspace)             # there
    read_experiment(file, workspace).identity                      # is the same

The files are found by reading: every text in the experiment's YAML, and in the YAML files that it names, that is a
file; of a model its external data; of Python what it imports and names from its folder. They keep their places relative
to each other; a path that is absolute or leads through a link is written anew. What is read by an absolute path from
within Python, or through a library, has to be on the other machine. A prepared model goes along, so that nobody
prepares it again.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from workbench.evaluation.entry_files import fingerprints
from workbench.evaluation.shared_store import Away, SharedStore
from workbench.evaluation.shared_store.listing import Listed, plain
from workbench.graph.door import open_foreign
from workbench.graph.intake.prepared import workspace_folder
from workbench.inputs.experiment import Experiment
from workbench.inputs.user_code import files_of
from workbench.values.documents.canonical import canonical_json, digest
from workbench.values.documents.input_files import is_file
from workbench.values.documents.sealed_json import Unsound
from workbench.values.documents.yaml_reader import texts_in
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import lock_file
from workbench.values.system.scratch import scratch_folder

T = TypeVar("T")
_log = logging.getLogger(__name__)

KIND = "inputs"
WAIT_S = 120.0
"""How long a store that is away is waited for: nothing can be done elsewhere without these files."""
_PAUSES_S = (1.0, 2.0, 5.0, 10.0)
_ABOUT = "inputs.json"
_FILES, _PREPARED = "files", "prepared"
_VERSION = 1
_LONGEST = 4096


def publish_inputs(
    experiment: Experiment, shared: SharedStore, *, wait_s: float = WAIT_S, report: Callable[[str], None] = _log.info
) -> str:
    """Put what an experiment is made of into the store; the name it has there: 64 hex digits of its content.

    Raises:
        ConfigError: a file that it names cannot be read any more.
        ToolchainError: the store does not take it for that long.
    """
    with scratch_folder("inputs") as stage:
        _lay_out(experiment, stage)
        listing = {name: Listed(**one) for name, one in fingerprints(stage).items()}
        name, size = digest(listing), sum(one.size_bytes for one in listing.values())
        report(f"{len(listing)} files of {experiment.name}, {size / 1e6:.1f} MB, go to {shared.url}")
        _patiently(lambda: shared.publish(KIND, name, stage, listing), shared, wait_s)
    return name


def materialize_inputs(shared: SharedStore, name: str, workspace: Path, *, wait_s: float = WAIT_S) -> Path:
    """Lay out below a workspace what `publish_inputs` published, once; the experiment's file there.

    Several processes may ask at once. Every file is held against the name, so nobody but the publisher decides what
    lies here.

    Raises:
        ToolchainError: the store does not give it for that long, or gives something else.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", name):
        raise ToolchainError(f"{name[:100]!r} is no name of published inputs.")
    place = workspace / ".workbench" / KIND / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with lock_file(place.with_suffix(".lock"), wait=True, remove=True):
        if not place.is_dir():
            with scratch_folder(KIND, inside=place.parent) as draft:
                (draft / "new").mkdir()
                _patiently(lambda: _copied(shared, name, draft), shared, wait_s)
                _keep_prepared(draft / "new" / _PREPARED, workspace_folder(workspace))
                (draft / "new").rename(place)
    return _experiment_in(place)


def _copied(shared: SharedStore, name: str, draft: Path) -> None:
    try:
        listing = shared.listing(KIND, name)
        if listing is None:
            raise ToolchainError(
                f"{shared.url} has no inputs {name[:12]}. Start the sweep again, which publishes them."
            )
        if digest(listing) != name:
            raise Unsound("its listing is another one")
        for left in sorted(draft.glob("new/**/*"), reverse=True):  # of a try that was interrupted
            left.rmdir() if left.is_dir() else left.unlink()
        shared.copy(listing, draft / "new")
    except Unsound as damage:
        raise ToolchainError(
            f"{shared.url}: the inputs {name[:12]} are damaged ({damage}). Remove them there and start the sweep again."
        ) from damage
    except OSError as error:
        raise ToolchainError(
            f"{draft.parent} cannot be written: {error.strerror}. Free space on this machine."
        ) from error


def _keep_prepared(found: Path, models: Path) -> None:
    for model in found.iterdir() if found.is_dir() else ():
        models.mkdir(parents=True, exist_ok=True)
        if not (models / model.name).exists():
            model.rename(models / model.name)


def _experiment_in(place: Path) -> Path:
    about = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
    written = about.get("experiment") if isinstance(about, dict) and about.get("version") == _VERSION else None
    if not isinstance(written, str) or not plain(written) or not (place / _FILES / written).is_file():
        raise ToolchainError(f"{place} holds no experiment that this version reads. Publish it with the same version.")
    return place / _FILES / written


def _lay_out(experiment: Experiment, stage: Path) -> None:
    """Links to all files, and rewritten YAML, as they shall lie on the other machine."""
    files, names = _files(experiment)
    root = Path(os.path.commonpath([file.parent for file in files]))
    for file in files:
        place = stage / _FILES / file.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file in names:
            place.write_text(_rewritten(file, names[file]), encoding="utf-8")
        else:
            place.symlink_to(file)
    if experiment.model.origin is not None:
        made = experiment.model.path.parent
        (stage / _PREPARED / made.name).mkdir(parents=True)
        for file in sorted(made.iterdir()):
            if file.is_file():
                (stage / _PREPARED / made.name / file.name).symlink_to(file.resolve())
    about = {
        "version": _VERSION,
        "experiment": experiment.path.resolve().relative_to(root).as_posix(),
        "identity": experiment.identity,
    }
    (stage / _ABOUT).write_text(canonical_json(about), encoding="utf-8")


def _files(experiment: Experiment) -> tuple[dict[Path, None], dict[Path, dict[str, Path]]]:
    """Every file, all links resolved; of each YAML file, which texts in it name which of them."""
    files: dict[Path, None] = {}
    names: dict[Path, dict[str, Path]] = {}
    waiting = [experiment.path.resolve()]
    while waiting:
        yaml = waiting.pop()
        if yaml in names:
            continue
        files[yaml], names[yaml] = None, {}
        for text in texts_in(yaml):
            written, file = _named(yaml.parent, text)
            if file is None:
                continue
            files[file], names[yaml][written] = None, file
            if file.suffix in (".yaml", ".yml"):
                waiting.append(file)
            elif file.suffix == ".py":
                files |= dict.fromkeys(files_of(file))
    model = experiment.model
    if model.origin is not None:
        model = open_foreign(model.origin.path)
    files |= dict.fromkeys((model.path.resolve(), *model.external_files))
    if missing := [file for file in files if not is_file(file)]:
        raise ConfigError("it is gone, and the experiment needs it.", file=missing[0])
    return files, names


def _named(folder: Path, text: str) -> tuple[str, Path | None]:
    """The file that a text names, perhaps followed by a function."""
    for written in (text, text.rpartition(":")[0]):
        if 0 < len(written) <= _LONGEST and "\n" not in written and is_file(folder / written):
            return written, (folder / written).resolve()
    return text, None


def _rewritten(yaml: Path, names: dict[str, Path]) -> str:
    text = yaml.read_text(encoding="utf-8")
    for written, file in names.items():
        if Path(os.path.normpath(yaml.parent / written)) != file or Path(written).is_absolute():
            parts = re.split(rf"(?<![\w./-]){re.escape(written)}(?![\w/-])", text)
            text = os.path.relpath(file, yaml.parent).join(parts)
    return text


def _patiently(action: Callable[[], T], shared: SharedStore, wait_s: float) -> T:
    end, tries = time.monotonic() + wait_s, 0
    while True:
        try:
            return action()
        except Away as away:
            if time.monotonic() >= end:
                raise ToolchainError(
                    f"{shared.url} is away ({away}) since {wait_s:g} s. Without it no other machine can take part."
                ) from away
            time.sleep(min(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)], max(0.0, end - time.monotonic())))
            tries += 1
