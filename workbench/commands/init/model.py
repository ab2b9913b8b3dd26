"""Looking at the model: what it is about, what can be INT8, which lengths and batches it takes; and for which targets
files are written, which of them share an experiment, and whether each can run what was staged."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from workbench.evaluation.data_check import check_data
from workbench.graph.door import open_foreign
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.inputs.experiment import read_experiment
from workbench.quantization.lowering.normalize import normalized
from workbench.search.refusals import candidate_errors, cannot_run
from workbench.space.space import Forbidden, build
from workbench.targets import REFERENCE, described, graph_targets, open_target
from workbench.targets.base import OperatorIssue
from workbench.targets.description import SpaceStart
from workbench.targets.int8_issues import quantized_already
from workbench.values.errors import CompileError, ConfigError, ToolchainError, nearest
from workbench.values.installed_targets import target_names
from workbench.values.model import Model

_FEWEST_POSITIONS = 16  # the segment table, which looks like one of positions, has two rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What was found out about the model.

    Attributes:
        model: as everything works on it.
        source: the user's file.
        longest: tokens it takes; None where it does not tell.
        fixed_length: of a model that takes no other length.
        largest_sample: numbers of one sample of the largest input, as far as its axes are fixed.
        targets: the names of those that are to execute it.
        starts: what each of them says of a first space for it.
    """

    model: Model
    source: Model
    layers: tuple[Layer, ...]
    longest: int | None
    fixed_length: int | None
    largest_sample: int
    targets: tuple[str, ...]
    starts: tuple[SpaceStart, ...]

    @property
    def target(self) -> str:
        """The one that the float baseline runs on."""
        return self.targets[0]

    @property
    def start(self) -> SpaceStart:
        return self.starts[0]

    @property
    def weights(self) -> list[Layer]:
        """Layers that multiply by a constant."""
        return [layer for layer in self.layers if layer.weight is not None]

    @property
    def products(self) -> int:
        """Of those, matrix products; the others are convolutions."""
        return sum(layer.op_type in ("MatMul", "Gemm") for layer in self.weights)

    @property
    def of_images(self) -> bool:
        """It convolves along two axes, and nothing along one, as signals are."""
        axes = {len(layer.weight_shape) - 2 for layer in self.weights if layer.op_type.startswith("Conv")}
        return 2 in axes and 1 not in axes

    @property
    def attention(self) -> int:
        """Products of two activations."""
        return sum(layer.second is not None for layer in self.layers)

    def each_target(self) -> Iterator[tuple[str, SpaceStart]]:
        return zip(self.targets, self.starts, strict=True)

    def on(self, targets: Sequence[str]) -> Outline:
        """The same model on some of its targets."""
        known = dict(self.each_target())
        return replace(self, targets=tuple(targets), starts=tuple(known[target] for target in targets))


def examine_model(model: Path | Model, *targets: str, source: Model | None = None) -> Outline:
    """Find out layers and limits, and ask the targets what changes the model; they may compile it.

    Args:
        source: the user's file, where the model was prepared from it.
    """
    model = open_foreign(model) if isinstance(model, Path) else model
    targets = targets or (REFERENCE,)
    proto = load_graph(model)
    if already := quantized_already(proto):
        raise ConfigError(
            f"{already[0].problem}: {already[0].operator} {already[0].node!r} quantizes or computes in integers.",
            file=model.path if source is None else source.path,
            hint="Start from the float model that it was made from.",
        )
    shapes = [spec.shape for spec in model.inputs]
    length = shapes[0][1] if len(shapes[0]) == 2 else None
    return Outline(
        model=model,
        source=source or model,
        layers=quantizable_layers(normalized(proto)),
        longest=longest_text(proto),
        fixed_length=length if isinstance(length, int) else None,
        largest_sample=max(math.prod(d for d in shape[1:] if isinstance(d, int)) for shape in shapes),
        targets=targets,
        starts=tuple(_space_start(target, model, source or model) for target in targets),
    )


def _space_start(target: str, model: Model, source: Model) -> SpaceStart:
    try:
        return described(target).space_start(model.path)
    except CompileError as error:
        hint = "Export it without what is named there, or in float32; `workbench inspect` says what other targets take."
        raise ConfigError(str(error), file=source.path, hint=hint) from error


def longest_text(proto: onnx.ModelProto) -> int | None:
    """Tokens that the table of position embeddings holds, None without such a table.

    It is known by being as wide as the token embedding without being indexed by an input of the model. Rounded down
    to a multiple of 16, because RoBERTa and its kin keep two rows of 514 for themselves.
    """
    known = constants(proto)
    repeats = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type in ("Cast", "Identity")}
    inputs = {value.name for value in proto.graph.input}
    widths, tables = set(), []
    for node in proto.graph.node:
        if node.op_type != "Gather" or node.input[0] not in known:
            continue
        table, index = known[node.input[0]], node.input[1]
        if len(table.dims) != 2 or table.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        while index in repeats:
            index = repeats[index]
        if index in inputs:
            widths.add(table.dims[1])
        elif table.dims[0] >= _FEWEST_POSITIONS:
            tables.append(table)
    return min((int(t.dims[0]) // 16 * 16 for t in tables if t.dims[1] in widths), default=None)


# --- targets ---------------------------------------------------------------------------------------------------------

ALL = "all"


Groups = Sequence[tuple[str, ...]]
"""Targets, each group an experiment of its own: modelled times are never compared with measured ones, and those of a
device not with those of this host."""


def choose_targets(written: Sequence[str]) -> tuple[Groups, bool, list[str]]:
    """The targets of `--target a,b` or `--target a --target b`, all by 'all', without those that cannot work; whether
    each was named; and notes on which were left out, and why."""
    names = [name.strip() for text in written for name in text.split(",") if name.strip()] or [REFERENCE]
    notes: list[str] = []
    named = ALL not in names
    if not named:
        if len(names) > 1:
            raise ConfigError("'all' leaves nothing to add.", key="--target")
        names = []
        for target in graph_targets():
            # a device that is not here may be rehearsed, or be on another machine; a library that is missing may not
            missing = present(target.name) if target.on_host else ""
            notes += [f"{target.name} is left out: {missing}"] if missing else []
            names += [] if missing else [target.name]
    for name in names:
        if name not in target_names():
            raise ConfigError(f"{name!r} is not a target.", key="--target", hint=nearest(name, (*target_names(), ALL)))
        if described(name).language:
            raise ConfigError(
                f"{name!r} takes folders of language models, no ONNX files.",
                key="--target",
                hint=f"Start from search_spaces/{name}.yaml; docs/llm.md says how.",
            )
    if len(set(names)) != len(names):
        raise ConfigError(f"{', '.join(names)}: one stands twice.", key="--target")
    host = tuple(name for name in names if described(name).on_host)
    devices = tuple((name,) for name in names if not described(name).on_host)
    return (*([host] if host else []), *devices), named, notes


def present(name: str) -> str:
    """Empty where a target can be used on this machine, else what is missing."""
    try:
        open_target(name).toolchain()
    except ToolchainError as error:
        return str(error)
    return ""


def read_back(groups: Groups, experiments: Sequence[Path], *, named: bool, one_size: bool) -> tuple[Groups, list[str]]:
    """Groups whose every target runs the float model, and a note on each that does not.

    Args:
        named: each target was named, so that one that does not is an error.
        one_size: all samples of an input have the same size.
    """
    kept: list[tuple[str, ...]] = []
    notes: list[str] = []
    for group, path in zip(groups, experiments, strict=True):
        experiment = read_experiment(path)
        check_data(experiment)
        asked: dict[str, list[OperatorIssue]] = {}  # of each target that can be asked here, about its float candidate
        for preset in experiment.space.presets:
            with contextlib.suppress(Forbidden, ToolchainError):
                one = build(experiment.space, preset.assignment)
                if one.quantization.scheme == "none" and one.target not in asked:
                    asked[one.target] = []
                    asked[one.target] = candidate_errors(open_target(one.target), experiment.model, one)
        rest = list(group)
        for target, issues in asked.items():
            if not issues:
                continue
            more = ""
            if any("free axes" in issue.problem for issue in issues):
                first = "Samples differ in size: resize or pad them to one and write them again; then "
                alone = f"`workbench init … --target {target}` alone gives every axis the size it has in the data."
                more = f"\n  {'' if one_size else first}{alone}"
            refusal = cannot_run(target, issues, experiment.model, key="--target", more=more)
            if named:
                raise refusal
            notes.append(f"{target} is left out: {refusal}")
            rest.remove(target)
        if rest:
            kept.append(tuple(rest))
    if not kept:
        raise ConfigError(f"no target can run it. {' '.join(notes)}", key="--target")
    return kept, notes


@contextlib.contextmanager
def about_the_users_files(staging: Path) -> Iterator[None]:
    """An error speaks of the user's files, never of the staged ones."""
    try:
        yield
    except ConfigError as error:
        inside = error.file is None or Path(error.file).resolve().is_relative_to(staging.resolve())
        file, line = (None, None) if inside else (error.file, error.line)
        raise ConfigError(error.rule, file=file, line=line, key=error.key, hint=error.hint) from error
