"""The first files of a pipeline: stages in the order of the models given, with edges where one's outputs are the
next one's inputs, and functions to be filled in where they are not."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Sequence
from pathlib import Path

from workbench.commands.init.data import assign_splits
from workbench.commands.init.files import Started, check_new, relative_path, write_all
from workbench.commands.init.model import Outline, examine_model
from workbench.commands.init.space import space_text
from workbench.inputs.dataset import read_manifest
from workbench.inputs.pipeline import read_pipeline
from workbench.targets import REFERENCE
from workbench.values.errors import ConfigError
from workbench.values.model import TensorSpec, axes_text
from workbench.values.pipeline import REQUEST
from workbench.values.system.cpu import this_cpu
from workbench.values.system.scratch import scratch_folder


def initialize_pipeline(
    models: Sequence[Path], data: Sequence[Path], to: Path, *, name: str | None, targets: Sequence[str]
) -> Started:
    """Write `experiments/NAME.yaml`, `calibration/NAME.yaml`, a search space for each stage, and `calibration/NAME.py`
    where glue is to be filled in. All of them or none.

    Args:
        data: requests: one `loader.py:function`, or NPZ files.

    Raises:
        ConfigError: a file exists already, several targets are named, or a model cannot be read.
    """
    target = targets[0] if targets else REFERENCE
    if len(targets) > 1 or "," in target:
        raise ConfigError("a stage has one target.", key="--target", hint="Name one; edit search_spaces/ for others.")
    stages = _names(models)
    chosen = name or "-".join(stages)
    places = {
        "experiment": to / "experiments" / f"{chosen}.yaml",
        "manifest": to / "calibration" / f"{chosen}.yaml",
        "glue": to / "calibration" / f"{chosen.replace('-', '_')}.py",
    }
    spaces = {stage: to / "search_spaces" / f"{chosen}-{stage}.yaml" for stage in stages}
    check_new(chosen, [*places.values(), *spaces.values()])
    outlines = {stage: examine_model(model, target) for stage, model in zip(stages, models, strict=True)}
    manifest = _manifest(chosen, data, places["manifest"])
    with scratch_folder("init") as staging:
        staged = staging / "requests.yaml"
        write_all({staged: _manifest(chosen, data, staged)})
        first = next(read_manifest(staged).batches("validation", 1)).feeds
    request = [TensorSpec(name=n, dtype=a.dtype.name, shape=a.shape) for n, a in first.items()]
    edges, functions = _wiring(stages, outlines, request)
    glue = f"../calibration/{places['glue'].name}"
    texts = {places["experiment"]: _experiment(chosen, models, places["experiment"], spaces, edges, glue)}
    texts[places["manifest"]] = manifest
    for stage, outline in outlines.items():
        texts[spaces[stage]] = space_text(f"{chosen}-{stage}", outline, this_cpu().cores, about=f"the stage {stage}")
    if functions:
        texts[places["glue"]] = _GLUE_HEAD.format(name=chosen) + "".join(functions)
    write_all(texts)
    if not functions:
        read_pipeline(places["experiment"])
    known = {stage: found for stage, found in edges.items() if found}
    missing = ", ".join(f"{stage}()" for stage in edges if stage not in known)
    fill = f"fill in {places['glue']}: {missing}; then " if missing else ""
    plan, sweep = (f"workbench {command} {places['experiment']}" for command in ("plan", "sweep"))
    return Started(
        files=tuple(texts),
        notes=tuple(
            f"{stage}: {', '.join(f'{n} from {s}.{t}' for n, s, t in found)}" for stage, found in known.items()
        ),
        commands=(fill + plan, sweep),
    )


def _names(models: Sequence[Path]) -> list[str]:
    found: list[str] = []
    for place, model in enumerate(models):
        own = model.parent.name if model.stem == "model" else model.stem
        word = re.sub(r"\W+", "_", own, flags=re.ASCII).strip("_").lower()
        taken = not word or word[0].isdigit() or keyword.iskeyword(word) or word in (REQUEST, *found)
        found.append(f"stage_{place + 1}" if taken else word)
    return found


def _wiring(
    stages: Sequence[str], outlines: dict[str, Outline], request: Sequence[TensorSpec]
) -> tuple[dict[str, list[tuple[str, str, str]]], list[str]]:
    """(stage → edges, [] where none can be told; functions to be filled in for those)."""
    edges: dict[str, list[tuple[str, str, str]]] = {}
    functions = []
    before: tuple[str, Sequence[TensorSpec]] = (REQUEST, request)
    for place, stage in enumerate(stages):
        model = outlines[stage].model
        edges[stage] = _fitting(model.inputs, *before)
        if not edges[stage]:
            functions.append(_function(stage, stages[:place], request, outlines))
        before = (stage, model.outputs)
    return edges, functions


def _fitting(inputs: Sequence[TensorSpec], source: str, given: Sequence[TensorSpec]) -> list[tuple[str, str, str]]:
    """Each input from the one tensor that fits it; [] where an input has none, or several."""
    found = []
    for spec in inputs:
        fits = [one.name for one in given if one.dtype == spec.dtype and _same_axes(spec, one)]
        named = [name for name in fits if name == spec.name] or fits
        if len(named) != 1:
            return []
        found.append((spec.name, source, named[0]))
    return found if len({tensor for *_, tensor in found}) == len(found) else []


def _same_axes(wanted: TensorSpec, given: TensorSpec) -> bool:
    """An axis that is free fits another free one, or a request's size."""
    if len(wanted.shape) != len(given.shape):
        return False
    pairs = zip(wanted.shape[1:], given.shape[1:], strict=True)
    return all(a == b if isinstance(a, int) else True for a, b in pairs)


_GLUE_HEAD = '''"""What lies between the stages of {name}. Arrays have no batch axis; docs/pipelines.md says more."""

import numpy as np
'''


def _function(stage: str, earlier: Sequence[str], request: Sequence[TensorSpec], outlines: dict[str, Outline]) -> str:
    def words(specs: Sequence[TensorSpec]) -> str:
        return ", ".join(f"{spec.name} {spec.dtype} {axes_text(spec.shape[1:])}" for spec in specs)

    takes = [REQUEST, *earlier[-1:]]
    given = [f"    request: {words(request)}"]
    given += [f"    {one}: one for each of its items: {words(outlines[one].model.outputs)}" for one in earlier[-1:]]
    gives = words(outlines[stage].model.inputs)
    lines = "\n".join(given)
    return f'''

def {stage}({", ".join(takes)}):
    """The items of the stage {stage}: a list, each {{{gives}}}.

{lines}
    """
    raise NotImplementedError("make the items of {stage}")
'''


def _manifest(name: str, data: Sequence[Path], file: Path) -> str:
    lines = [f"# Requests of the pipeline {name}, and what each should be answered.", "version: 1", "task: tensors"]
    written = str(data[0])
    if len(data) == 1 and ":" in written:
        loader, _, function = written.rpartition(":")
        lines.append(f"loader: {json.dumps(f'{relative_path(Path(loader), file)}:{function}')}")
    else:
        files = {split: relative_path(path, file) for split, path in assign_splits(data).items()}
        lines.append(f"files: {json.dumps(files)}")
    lines += [
        "# How good answers are: metric: file.py:function, given outputs (the answers) and targets (the data's).",
        "# Without it an answer counts where it is the float pipeline's.",
    ]
    return "\n".join(lines) + "\n"


def _experiment(
    name: str,
    models: Sequence[Path],
    file: Path,
    spaces: dict[str, Path],
    edges: dict[str, list[tuple[str, str, str]]],
    glue: str,
) -> str:
    lines = [
        "# A pipeline: several models that answer one request. docs/pipelines.md explains every key.",
        "version: 1",
        f"name: {name}",
        f"dataset: ../calibration/{name}.yaml",
        "stages:",
    ]
    for (stage, space), model in zip(spaces.items(), models, strict=True):
        lines += [
            f"  {stage}:",
            f"    model: {json.dumps(relative_path(model, file))}",
            f"    search_space: {relative_path(space, file)}",
        ]
        if edges[stage]:
            lines.append(f"    inputs: {json.dumps({n: f'{s}.{t}' for n, s, t in edges[stage]})}")
        else:
            lines.append(f"    glue: {glue}:{stage}")
    lines += [
        f"# answer: {glue}:answer          # makes the answer; without it, the outputs of the last stage are it",
        "service: {concurrency: 4}             # clients that wait for their answers; p99_ms: 500 would be a limit",
        "constraints: {accuracy_loss_pp: 0.5}  # how much worse the answers may be than the float pipeline's",
        "budget: {timeout: 30m}",
    ]
    return "\n".join(lines) + "\n"
