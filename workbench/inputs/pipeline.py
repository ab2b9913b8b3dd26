"""Pipeline: several models that answer one request together, and the user's own code between them.

    version: 1
    name: page-ocr
    dataset: pages.yaml                  # requests, and the metric of the answers
    stages:
      detect: {model: det.onnx, search_space: cpu.yaml, inputs: {x: request.image}}
      read:   {model: rec.onnx, search_space: cpu.yaml, glue: ocr.py:crops}
    answer: ocr.py:texts

A stage runs once for each of its items, of which a request has any number. Without glue the items are those of the
stage that its `inputs` name (`detect.boxes`), tensor by tensor, or the request itself. With glue they are what the
function returns: it is given what its parameters name, `request` (name → array) and stages (a list of their outputs,
name → array, one for each item), and returns a list of items (input → array). No array has a batch axis.

`again` makes further items of what a stage itself gave, until it makes none: steps of a decoder, whose cache `carry`
hands on.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.inputs.dataset import Dataset, read_manifest
from workbench.inputs.experiment import FEWEST_SAMPLES, LARGEST_SEED, MOST_TRIALS, read_limit, workspace_of
from workbench.space.service_reader import read_question
from workbench.user_code import UserCode, named_code
from workbench.values.documents.canonical import digest
from workbench.values.documents.input_files import read_bytes
from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.errors import ConfigError, nearest
from workbench.values.measurement import Split
from workbench.values.pipeline import REQUEST, Wiring
from workbench.values.sequential import Gate
from workbench.values.service import ServiceQuestion

MOST_STAGES = 16
_OF_EXPERIMENTS = ("constraints", "measure", "sampler", "compile", "smoke_cosine")
_OF_MANIFESTS = ("inputs", "axes", "outputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One model of a pipeline.

    Attributes:
        code, again: of its glue and of what makes further rounds; None without.
        manifest, experiment: keys of its dataset's manifest and of its experiment that are the user's.
    """

    wiring: Wiring
    code: UserCode | None
    again: UserCode | None
    model: Path
    search_space: Path
    trials: int
    manifest: Mapping[str, Any]
    experiment: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.wiring.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The parsed file: every path absolute, all that it names read and checked but for the models.

    Attributes:
        stages: each behind those that it takes from.
        answer: code that makes an answer of what its parameters name; None for the outputs of the last stage.
        samples: of each split, None for all.
        gate: limit of the accuracy loss with its zone, in the metric's unit (percentage points of a share).
    """

    name: str
    about: str
    path: Path
    workspace: Path
    dataset: Dataset
    stages: tuple[Stage, ...]
    answer: tuple[UserCode, tuple[str, ...]] | None
    samples: Mapping[Split, int | None]
    service: ServiceQuestion
    gate: Gate
    timeout_s: float
    seed: int

    @property
    def identity(self) -> str:
        """64 hex digits over all that decides what an answer is, but for the recipes of its stages."""
        codes = [code for each in self.stages for code in (each.code, each.again)]
        codes += [self.answer[0]] if self.answer else []
        return digest(
            {
                "name": self.name,
                "data": self.dataset.identity,
                "stages": [each.wiring for each in self.stages],
                "code": [None if code is None else [code.sha256, code.function, *code.versions] for code in codes],
            }
        )

    @property
    def concurrency(self) -> int:
        """Clients that wait for their answers."""
        assert self.service.load is not None  # no other load is read
        return self.service.load.concurrency or 1

    @property
    def wirings(self) -> tuple[Wiring, ...]:
        return tuple(each.wiring for each in self.stages)

    @property
    def folder(self) -> Path:
        return self.workspace / ".workbench" / "pipelines" / self.name


def read_pipeline(path: Path, workspace: Path | None = None) -> Pipeline:
    """Read a pipeline's file and what it refers to.

    Raises:
        ConfigError: in this file, the manifest of its requests, or the user's code; stages that wait for each other.
    """
    with read_yaml(path) as top:
        name = top.name("name")
        if not name or any(c in name for c in "/\\ \t\n:") or name.startswith("."):
            top.refuse("name", f"{name!r} cannot name a folder.", "Use letters, digits, '-', '_' and '.'.")
        about = top.text("about", "")
        dataset_path = top.file_path("dataset")
        sections = dict(top.sections("stages"))
        if not sections:
            top.refuse("stages", "there is none.", "Write stages: {NAME: {model: …, search_space: …, inputs: …}}.")
        if len(sections) > MOST_STAGES:
            top.refuse("stages", f"{len(sections)} are more than {MOST_STAGES}.")
        stages = [_stage(section, each, [n for n in sections if n != each]) for each, section in sections.items()]
        answer = _glue(top, "answer", list(sections)) if top.has("answer") else None
        samples: dict[Split, int | None] = {}
        splits: tuple[Split, ...] = ("calibration", "validation", "holdout")
        for split in splits:
            with top.section(split) as section:
                least = 1 if split == "calibration" else FEWEST_SAMPLES
                samples[split] = section.integer("samples", minimum=least) if section.has("samples") else None
        service = read_question(top)
        if service is None:
            top.refuse("service", "the key is missing.", "Write service: {concurrency: 8, p99_ms: 500}.")
        with top.section("constraints") as section:
            key = "accuracy_loss" if section.has("accuracy_loss") else "accuracy_loss_pp"
            gate = Gate.around(**read_limit(section, key)) if section.has(key) else Gate.around(0.5)
        with top.section("budget") as section:
            timeout_s = section.seconds("timeout", 3600.0)
        seed = top.integer("seed", 0, minimum=0, maximum=LARGEST_SEED)
    assert service is not None  # refused otherwise
    if service.load is None or service.load.arrivals != "closed":
        raise top.section("service").error(
            "rate", "a pipeline is asked by so many clients.", "Write service: {concurrency: 8, p99_ms: 500}."
        )
    dataset = read_manifest(dataset_path)
    unit = "" if dataset.metric is None else dataset.metric.unit_of(dataset.metric.name)
    right = "accuracy_loss" if unit else "accuracy_loss_pp"
    if key != right and top.section("constraints").names():
        raise top.section("constraints").error(
            key, f"the answers' metric is {f'in {unit}' if unit else 'a share of 0..1'}.", f"Write {right}."
        )
    dataset = dataset.first(validation=samples["validation"], holdout=samples["holdout"])
    return Pipeline(
        name=name,
        about=about,
        path=top.file,
        workspace=(workspace or workspace_of(path)).resolve(),
        dataset=dataset,
        stages=_in_order(stages, top),
        answer=answer,
        samples=samples,
        service=service,
        gate=gate,
        timeout_s=timeout_s,
        seed=seed,
    )


def _stage(section: Section, name: str, others: Sequence[str]) -> Stage:
    with section:
        if not name.isidentifier() or name == REQUEST:
            hint = "Use letters, digits and '_'."
            section.refuse(None, f"{name!r} cannot name a stage: glue has parameters of these names.", hint)
        model = section.file_path("model")
        space = section.file_path("search_space")
        glue = _glue(section, "glue", others) if section.has("glue") else None
        edges = _edges(section, others)
        again = _glue(section, "again", [*others, name]) if section.has("again") else None
        takes = glue[1] if glue else tuple(dict.fromkeys(source for _, source, _ in edges))
        if (glue is None) == (not edges):
            rule = "has both glue and inputs." if glue else "has neither inputs nor glue."
            section.refuse(
                None, rule, "inputs: {x: request.image} takes tensors as they are; glue makes items of them."
            )
        return Stage(
            wiring=Wiring(
                name=name,
                takes=takes,
                edges=edges,
                glue=section.text("glue", ""),
                most_items=section.integer("most_items", 256, minimum=1, maximum=1 << 16),
                again=section.text("again", ""),
                again_takes=again[1] if again else (),
                carry=_carried(section),
            ),
            code=glue[0] if glue else None,
            again=again[0] if again else None,
            model=model,
            search_space=space,
            trials=section.integer("trials", 6, minimum=1, maximum=MOST_TRIALS),
            manifest=_manifest(section),
            experiment={key: section.raw(key) for key in _OF_EXPERIMENTS if section.has(key)},
        )


def _manifest(section: Section) -> dict[str, Any]:
    """What its dataset's manifest says beside the data: `manifest: {inputs: …, axes: …, outputs: …}`."""
    with section.section("manifest") as written:
        return {key: written.raw(key) for key in _OF_MANIFESTS if written.has(key)}


def _carried(section: Section) -> tuple[tuple[str, str], ...]:
    if section.has("carry") and not section.has("again"):
        section.refuse("carry", "means nothing without again.", "again: file.py:function makes the next round's items.")
    with section.section("carry") as written:
        return tuple((output, written.text(output)) for output in written.names())


def _edges(section: Section, others: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    found = []
    with section.section("inputs") as inputs:
        for name in inputs.names():
            source, dot, tensor = inputs.text(name).partition(".")
            if not dot or not tensor:
                inputs.refuse(
                    name, f"{inputs.text(name)!r} is not STAGE.TENSOR.", "Write request.image or detect.boxes."
                )
            elif source not in (REQUEST, *others):
                inputs.refuse(name, f"there is no stage {source!r}.", nearest(source, [REQUEST, *others]))
            else:
                found.append((name, source, tensor))
    return tuple(found)


def _glue(section: Section, key: str, stages: Sequence[str]) -> tuple[UserCode, tuple[str, ...]]:
    """The function and its parameters, which are `request` and names of stages."""
    code = named_code(section, key, section.text(key))
    tree = ast.parse(read_bytes(code.file, limit_bytes=1 << 26), filename=str(code.file))
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if code.function not in defined:
        raise ConfigError(f"has no function {code.function!r}.", file=code.file, hint=nearest(code.function, defined))
    node = defined[code.function]
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    takes = tuple(each.arg for each in arguments)
    for each in takes:
        if each not in (REQUEST, *stages):
            raise ConfigError(
                f"{code.function}() has a parameter {each!r}, which is neither {REQUEST} nor a stage that it may take.",
                file=code.file,
                line=node.lineno,
                hint=nearest(each, [REQUEST, *stages]),
            )
    if not takes or node.args.vararg or node.args.kwarg:
        rule = f"{code.function}() does not say what it takes."
        raise ConfigError(
            rule, file=code.file, line=node.lineno, hint=f"Name parameters: {REQUEST}, {', '.join(stages)}."
        )
    return code, takes


def _in_order(stages: Sequence[Stage], top: Section) -> tuple[Stage, ...]:
    """Each behind those that it takes from, in the file's order otherwise.

    Raises:
        ConfigError: some wait for each other.
    """
    left, found = list(stages), list[Stage]()
    needs = {each.name: {*each.wiring.takes, *each.wiring.again_takes} - {each.name} for each in stages}
    while left:
        known = {REQUEST, *(each.name for each in found)}
        ready = next((each for each in left if known.issuperset(needs[each.name])), None)
        if ready is None:
            way, waiting = [left[0].name], [each.name for each in left]
            while way.count(way[-1]) < 2:
                way.append(next(name for name in waiting if name in needs[way[-1]]))
            circle = " → ".join(way[way.index(way[-1]) :])
            raise top.section("stages").error(way[-1], f"stages wait for each other: {circle}.", "Take one edge out.")
        left.remove(ready)
        found.append(ready)
    return tuple(found)
