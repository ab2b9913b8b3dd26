"""Each stage of a pipeline as a question of its own: its model, and as data what the float pipeline asks it.

Nobody has data for the second stage of a pipeline. So the float pipeline runs over its requests once, and what reaches
each stage becomes that stage's calibration, validation and holdout, scored against its float model.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from workbench.evaluation.carried import open_reference
from workbench.evaluation.pipeline_pass import OpenStage, Trace, requests_of, traces_of
from workbench.graph.door import open_foreign
from workbench.graph.intake.prepared import prepared, workspace_folder
from workbench.graph.read import load_graph
from workbench.inputs.dataset.interface_reader import read_interface
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.inputs.metrics import infer_outputs
from workbench.inputs.pipeline import Pipeline, Stage
from workbench.values.documents.canonical import file_digest
from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.model import Model
from workbench.values.pipeline import Item
from workbench.values.system.cpu import this_cpu
from workbench.values.system.files import temporary_beside, write_text_atomically

FEWEST_ITEMS = 8
"""Of a split: a stage that the requests reach more seldom can be neither calibrated nor judged."""
MOST_ITEMS = 2000
"""Of a split, evenly from all; more tell nothing of a recipe that these do not."""
_LOOKED_AT = 32
SERVICE = {"max_batch_size": [1, 4, 8], "batch_timeout_ms": [0, 2], "workers": [1, 2]}
"""What may be told to a stage's service, where its search space does not say it."""
HOST = {"request_ms": 0.1, "batch_ms": 0.2, "worker_batch_ms": 0.1, "origin": "a stage alone"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatPipeline:
    """Attributes:
    experiments: stage → its own question.
    traces: split → what the float pipeline did with each request.
    """

    experiments: Mapping[str, Experiment]
    traces: Mapping[Split, Sequence[Trace]]

    def items_a_request(self, stage: str) -> list[int]:
        return [len(trace.items[stage]) for trace in self.traces["validation"]]


def float_pipeline(pipeline: Pipeline, report: Callable[[str], None] = lambda said: None) -> FloatPipeline:
    """Run the float pipeline over all requests, and write each stage's data and experiment.

    Raises:
        ConfigError: a model cannot be read, glue fails, or a stage gets too few items.
    """
    stages: dict[str, OpenStage] = {}
    with contextlib.ExitStack() as sessions:
        for stage in pipeline.stages:
            folder = pipeline.folder / stage.name
            folder.mkdir(parents=True, exist_ok=True)
            manifest = folder / "data.yaml"
            _write_yaml(manifest, _manifest(stage, {}))
            if not stage.model.is_file():
                raise ConfigError(
                    f"{stage.model} does not exist.", file=pipeline.path, key=f"stages.{stage.name}.model"
                )
            interface = read_interface(manifest)
            root = workspace_folder(pipeline.workspace)
            model = prepared(open_foreign(stage.model), interface, root, declared_in=pipeline.path)
            session = sessions.enter_context(contextlib.closing(open_reference(model)))
            stages[stage.name] = OpenStage(
                name=stage.name, model=model, interface=interface, file=pipeline.path, batch=1, session=session
            )
        traces: dict[Split, Sequence[Trace]] = {}
        for split in get_args(Split):
            requests = requests_of(pipeline.dataset, split, pipeline.samples[split])
            report(f"the float pipeline answers {len(requests)} requests of {split}")
            # outputs are looked at for a few calibration requests alone
            traces[split] = [
                trace if split == "calibration" and place < _LOOKED_AT else replace(trace, outputs={})
                for place, trace in enumerate(traces_of(pipeline, stages, requests))
            ]
    experiments = {each.name: _experiment(pipeline, each, stages[each.name].model, traces) for each in pipeline.stages}
    return FloatPipeline(experiments=experiments, traces=traces)


def _experiment(pipeline: Pipeline, stage: Stage, model: Model, traces: Mapping[Split, Sequence[Trace]]) -> Experiment:
    folder, files, counts = pipeline.folder / stage.name, {}, {}
    for split, found in traces.items():
        items = [item for trace in found for item in trace.items[stage.name]]
        if len(items) < FEWEST_ITEMS:
            raise ConfigError(
                f"{len(found)} requests of {split} give {len(items)} items, fewer than {FEWEST_ITEMS}.",
                file=pipeline.path,
                key=f"stages.{stage.name}",
                hint="Give more requests, or look at what the glue returns for them.",
            )
        if len(items) > MOST_ITEMS:
            items = [items[int(place)] for place in np.linspace(0, len(items) - 1, MOST_ITEMS)]
        files[split], counts[split] = f"{split}.npz", len(items)
        with temporary_beside(folder / files[split]) as draft, draft.open("wb") as stream:
            np.savez(stream, **_arrays(items))  # type: ignore[arg-type]  # arrays by name
    gave = [one for trace in traces["calibration"] for one in trace.outputs.get(stage.name, ())][:_LOOKED_AT]
    _write_yaml(folder / "data.yaml", _outputs(stage, model, gave) | _manifest(stage, files))
    stated = pipeline.service.host
    host = HOST | {"cores": this_cpu().cores if stated is None else len(stated.capacity)}
    written: dict[str, Any] = {
        "version": 1,
        "name": f"{pipeline.name}.{stage.name}",
        "about": f"The stage {stage.name} of {pipeline.path.name}; written by `workbench sweep` of that file.",
        "model": str(stage.model),
        "dataset": "data.yaml",
        "search_space": str(_space(stage, folder)),
        "calibration": {"samples": min(128, counts["calibration"]), "batch": 1},
        "objectives": ["service_throughput_per_s", "accuracy"],
        # its items pass no HTTP: what a pipeline's service costs is a matter of the whole
        "service": {"concurrency": pipeline.concurrency, "curve": "3s", "confirm": 0, "host": host},
        "budget": {"trials": stage.trials, "timeout": f"{pipeline.timeout_s:g}s"},
        "measure": {"calls": 200, "short_calls": 40},
        "seed": pipeline.seed,
        **stage.experiment,
    }
    _write_yaml(folder / "experiment.yaml", written)
    return read_experiment(folder / "experiment.yaml", pipeline.workspace)


def _outputs(stage: Stage, model: Model, gave: Sequence[Item]) -> dict[str, Any]:
    """What outputs mean where neither the user nor the model's file says it of all: by their values as far as these
    tell, else compared as values without a limit, since the whole pipeline's answers decide."""
    alike = all(each[name].shape == first.shape for name, first in gave[0].items() for each in gave)
    samples = {name: np.stack([each[name] for each in gave]) for name in gave[0]} if alike else None
    if "outputs" in stage.manifest or all(one.use is not None for one in infer_outputs(model, load_graph(model))):
        return {}
    found = infer_outputs(model, load_graph(model), samples)
    known = {o.name: {"meaning": o.use.meaning, **dict(o.use.options)} for o in found if o.use is not None}
    others = {one.name: {"meaning": "values", "limited": False} for one in found if one.use is None}
    return {"outputs": known | others}


def _space(stage: Stage, folder: Path) -> Path:
    """The stage's search space; with what may be told to a service where it does not say it."""
    text = read_text(stage.search_space, limit_bytes=1 << 20)
    if any(line.startswith("service:") for line in text.splitlines()):
        return stage.search_space
    own = folder / f"space-{file_digest(stage.search_space)[:12]}.yaml"
    write_text_atomically(own, f"{text.rstrip()}\nservice: {json.dumps(SERVICE)}\n")
    return own


def _manifest(stage: Stage, files: Mapping[Split, str]) -> dict[str, Any]:
    return {"version": 1, "task": "tensors", "files": dict(files), **stage.manifest}


def _write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    """JSON is YAML."""
    write_text_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _arrays(items: Sequence[Item]) -> dict[str, np.ndarray[Any, Any]]:
    """As a manifest's arrays: padded to the largest, with the true sizes beside them where they differ."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name in items[0]:
        arrays = [np.asarray(item[name]) for item in items]
        shapes = np.array([array.shape for array in arrays], dtype=np.int64)
        if (shapes == shapes[0]).all():
            found[name] = np.stack(arrays)
            continue
        made = np.zeros((len(arrays), *shapes.max(axis=0).tolist()), dtype=arrays[0].dtype)
        for place, array in enumerate(arrays):
            made[place][tuple(slice(size) for size in array.shape)] = array
        last = int(np.flatnonzero((shapes != shapes[0]).any(axis=0)).max()) + 1
        found[name], found[f"{name}.sizes"] = made, shapes[:, :last]
    return found
