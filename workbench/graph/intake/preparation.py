"""A user's ONNX file becomes a prepared one: step by step, each only where needed, and proven by running both.

    done = prepare(source, interface, folder)      # folder/NAME.onnx, and what was done; None where nothing is needed

Runs in a process with limits (see `prepared`), since it runs a model of somebody else's.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, TensorProto

from workbench.graph.apart import kept_aside
from workbench.graph.intake.axes import batch_first, named_axes, to_prepared, unnamed
from workbench.graph.intake.fold import build_in, constant_values, folded, hoisted
from workbench.graph.intake.opset import WANTED, computes_in_half, in_float32, raised
from workbench.graph.intake.ports import PortPlan, fixed_rows, is_batch_name, plan_inputs, remedy, single
from workbench.graph.intake.random_operators import TABLE_NAME, random_nodes, reproducible, stilled
from workbench.graph.intake.trials import (
    Feeds,
    Recipe,
    Run,
    difference,
    graph_to_prepare,
    recipes,
    runner,
    runner_of,
    take_all_in,
    write_prepared,
)
from workbench.graph.nodes import called, copied, opset_of
from workbench.graph.read import embedding_rows
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.values.errors import ConfigError
from workbench.values.interface import Interface
from workbench.values.model import Model, PreparationStep, TensorSpec, axes_text

Array = npt.NDArray[Any]

_log = logging.getLogger(__name__)

_FLOAT_NOISE = 1e-3
"""Of the largest value of an output: kernels of another opset or shape sum in another order."""
_FOLDING_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, onnx.shape_inference.InferenceError)
_TRIAL_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, MemoryError)
_HALF_NOISE = 0.05
_FEEDS_WITH_NOISE = 36
_ROWS = 1e-2
_LARGER = (4, 16)
"""Times the size that a model accepted, to see which axes are no more than 1 by chance."""


def wanted(source: Model, interface: Interface) -> bool:
    """Whether there may be anything to do, as far as the file tells without being run."""
    proto = graph_to_prepare(source)
    values = (*proto.graph.input, *proto.graph.output)
    if (
        any(unnamed(dim) for value in values for dim in value.type.tensor_type.shape.dim)
        or opset_of(proto) < WANTED
        or any(use.constant is not None for use in interface.inputs)
        or any(node.op_type == "If" for node in proto.graph.node)
        or any(True for _ in random_nodes(proto.graph))
        or computes_in_half(proto)
    ):
        return True
    plans = plan_inputs(source.inputs, interface)
    shapes = {spec.name: spec.shape for spec in source.inputs}
    return (
        any(plan.batch != 0 or plan.guessed or plan.dims != shapes[plan.name] for plan in plans)
        or (_one_row(plans) and any(len(s.shape) > 2 and s.shape[0] != 1 for s in source.outputs))
        or any(_elsewhere(spec, plans) for spec in source.outputs)
    )


def _one_row(plans: Sequence[PortPlan]) -> bool:
    """Whether every input has one sample first, and no other number."""
    return all(plan.batch == 0 and plan.dims[0] == 1 for plan in plans)


def _elsewhere(spec: TensorSpec, plans: Sequence[PortPlan]) -> bool:
    """Whether an output's own names put the batch behind its first axis, or leave open whether it has a row for each
    sample where every call takes so many; where that is one, each has."""
    rows, size = fixed_rows(plans), next(iter(spec.shape), None)
    unsaid = rows is not None and size != rows and (rows == 1 or not isinstance(size, int))
    return unsaid or _named_batch(spec, plans) not in (0, None)


def _named_batch(spec: TensorSpec, plans: Sequence[PortPlan]) -> int | None:
    symbols = {plan.dims[plan.batch] for plan in plans if plan.batch is not None}
    found = [i for i, d in enumerate(spec.shape) if isinstance(d, str) and (d in symbols or is_batch_name(d))]
    return found[0] if found else None


def prepare(source: Model, interface: Interface, folder: Path) -> tuple[Path, tuple[PreparationStep, ...]] | None:
    """Write the prepared file into `folder`; None where the source needs nothing.

    Raises:
        ConfigError: what only the user can know or change, with what to write; or the two files do not agree.
    """
    with kept_aside(source.size_bytes):
        made = _Preparation(source, interface, folder)
        try:
            return made.done()
        except _NotProven:
            if all(step.name != "branches" for step in made.steps):
                raise
            # what exporters declare of shapes inside an If need not hold, so that a branch may have been taken wrongly
            return _Preparation(source, interface, folder, by_shape=False).done()


class _NotProven(ConfigError):
    """The prepared file does not give what the source gives."""


class _Preparation:
    """One file on its way: the graph as it is now, and what was done to it."""

    def __init__(self, source: Model, interface: Interface, folder: Path, *, by_shape: bool = True) -> None:
        self.source, self.interface, self.folder, self.by_shape = source, interface, folder, by_shape
        self.original = self.proto = graph_to_prepare(source)
        self.plans = plan_inputs(source.inputs, interface)
        self.constants = constant_values(source.inputs, interface)
        self.steps: list[PreparationStep] = []
        self.outputs: dict[str, int | None] = {}
        self.tolerance = _FLOAT_NOISE
        self.noise = False

    def done(self) -> tuple[Path, tuple[PreparationStep, ...]] | None:
        self._settle_axes()
        self._build_in()
        self._raise_opset()
        self._settle_noise()
        self._put_batch_first()
        self._widen()  # last, so that transposes lie behind the casts: before one, they crash ONNX Runtime 1.31.1
        if not self.steps:
            return None
        self.proto = hoisted(self.proto) if self.proto is not self.original else self.proto
        target = self.folder / self.source.path.name
        write_prepared(self.proto, target, self.source)
        return target, tuple(self._proven(target))

    # --- steps ---

    def _settle_axes(self) -> None:
        self._check_guesses()
        named = named_axes(self.proto, self.plans)
        if named is not self.proto:
            dims = {
                v.name: tuple(d.dim_value or d.dim_param or None for d in v.type.tensor_type.shape.dim)
                for v in named.graph.input
            }
            self.plans = tuple(replace(plan, dims=dims[plan.name]) for plan in self.plans)
            new = ", ".join(f"{plan.name} {axes_text(plan.dims)}" for plan in self.plans)
            self._did("axes", f"The inputs' axes are named or fixed: {new}.", named)

    def _build_in(self) -> None:
        proto = build_in(self.proto, self.constants) if self.constants else self.proto
        try:
            flat, inlined = folded(proto, self.constants, by_shape=self.by_shape)
        except _FOLDING_ERRORS as error:  # what they refuse is left as it was
            _log.debug("nothing was folded: %s", error)
            flat, inlined = proto, ()
        if self.constants:
            said = ", ".join(f"{name} = {array.tolist()}" for name, array in self.constants.items())
            self._did("constants", f"Built in: {said}.", flat)
        if inlined:
            names = ", ".join(inlined[:6]) + (f" and {len(inlined) - 6} more" if len(inlined) > 6 else "")
            self._did("branches", f"If whose condition is known became the branch it takes: {names}.", flat)
        self.proto = flat

    def _raise_opset(self) -> None:
        if opset_of(self.proto) >= WANTED:
            return
        new = raised(hoisted(self.proto))
        if opset_of(new) >= WANTED:
            self._did("opset", f"Opset {opset_of(self.proto)} became {opset_of(new)}, by onnx's own converter.", new)

    def _settle_noise(self) -> None:
        found = list(random_nodes(self.proto.graph))
        if not found:
            return
        spread = self._spread_of_runs()
        names = ", ".join(called(node) for node in found[:4]) + (" and more" if len(found) > 4 else "")
        if spread == 0.0:
            return  # drawn, and multiplied by zero or never used
        new, replaced = reproducible(self.proto)
        self.noise = True
        self._did(
            "noise",
            f"{names} drew random numbers; {len(replaced)} of them now take noise from a fixed table, so that "
            "equal inputs give equal outputs. What is proven is the rest: both with their noise at its mean.",
            new,
            (("spread_of_source", spread),) if np.isfinite(spread) else (),
        )

    def _widen(self) -> None:
        if computes_in_half(self.proto):
            take_all_in(self.proto, self.source.path)
            self.tolerance = _HALF_NOISE
            self._did(
                "float32",
                "Computes in float32 where the source does in float16; inputs and outputs keep their type.",
                in_float32(self.proto),
            )

    def _put_batch_first(self) -> None:
        self.outputs, ranks, sized = self._output_axes()
        moved = [plan for plan in self.plans if plan.batch != 0]
        changed = [name for name, axis in self.outputs.items() if axis != 0]
        mistaken = [s for s in self.source.outputs if s.shape and ranks.get(s.name, len(s.shape)) != len(s.shape)]
        lone = single(self.plans)
        free = lone and any(p.batch is not None and not isinstance(p.dims[p.batch], int) for p in self.plans)
        if not moved and not changed and not free and not sized and not mistaken:
            return
        words = []
        if lone:
            words.append("Some input has no axis for samples, so that one call is one sample (batch fixed at 1)")
        words += [f"{p.name} takes its axis {p.batch} first" for p in moved if p.batch is not None]
        words += [f"{n} gives its axis {self.outputs[n]} first" for n in changed if self.outputs[n] is not None]
        words += [f"{p.name} got a first axis" for p in moved if p.batch is None]
        words += [f"{n} got a first axis" for n in changed if self.outputs[n] is None]
        words += [f"{n} says that it has {rows} row{'s' if rows > 1 else ''}" for n, rows in sized.items()]
        words += [f"{s.name} has {ranks[s.name]} axes, and not {axes_text(s.shape)} as declared" for s in mistaken]
        self._did("batch", "; ".join(words) + ".", batch_first(self.proto, self.plans, self.outputs, ranks, sized))

    def _did(self, name: str, words: str, proto: ModelProto, figures: tuple[tuple[str, float], ...] = ()) -> None:
        self.proto = proto
        self.steps.append(PreparationStep(name=name, words=words, figures=figures))

    # --- what running tells ---

    @functools.cached_property
    def accepted(self) -> tuple[Recipe, Run]:
        """Feeds the source accepts."""
        try:
            run = runner(self.source.path)
        except RUNTIME_ERRORS as error:
            half = " A conversion to float16 must change what Cast nodes give, too." if "float16" in str(error) else ""
            raise ConfigError(
                f"ONNX Runtime, the reference, cannot open it: {_line(error)}",
                file=self.source.path,
                hint=f"Export the model again, so that ONNX Runtime opens it.{half}",
            ) from error
        said = ""
        for recipe in recipes(self.plans, self.interface.axes, embedding_rows(self.proto)):
            try:
                run({**self.constants, **recipe.feeds(self.plans, 1, 0)})
            except _TRIAL_ERRORS as error:  # a size may be far too large for it
                said = said or _line(error)
                continue
            return recipe, run
        raise ConfigError(
            f"none of the feeds that were tried runs through it, so that nothing can be proven: {said}",
            file=self.source.path,
            hint="Declare the sizes it takes, inputs: {NAME: {axes: [batch, SIZE]}}, and constants.",
        )

    def _spread_of_runs(self) -> float:
        """How far two runs of the source on the same feeds are apart; 0 where noise never shows.

        An output of whole numbers shows noise now and then only, so that several feeds are tried.
        """
        recipe, run = self.accepted
        for seed in range(_FEEDS_WITH_NOISE):
            feeds = {**self.constants, **recipe.feeds(self.plans, 1, seed)}
            if (spread := difference(run(feeds), run(feeds))) > 0:
                return spread
        return 0.0

    def _check_guesses(self) -> None:
        """Whether rows do not see each other where the batch axis is only a guess."""
        guessed = [plan for plan in self.plans if plan.guessed]
        if not guessed:
            return
        recipe, run = self.accepted
        if self._rows_agree(recipe, run):
            return
        if any(plan.batch != 0 for plan in guessed):
            name = next(plan.name for plan in guessed if plan.batch != 0)
            spec = next(spec for spec in self.source.inputs if spec.name == name)
            raise ConfigError(
                f"it is not clear which axis of input {name!r} counts samples: by the likeliest, samples change each "
                "other's outputs.",
                key=f"inputs.{name}",
                hint=remedy(spec),
            )
        self.plans = tuple(
            plan if plan.dims[:1] == (1,) else replace(plan, batch=None, guessed=False) for plan in self.plans
        )

    def _rows_agree(self, recipe: Recipe, run: Run) -> bool:
        two = recipe.feeds(self.plans, 2, 1)
        try:
            both = run({**self.constants, **two})
            alone = [run({**self.constants, **_row(self.plans, two, row)}) for row in range(2)]
        except RUNTIME_ERRORS:
            return False
        for name, whole in both.items():
            sizes = enumerate(zip(whole.shape, alone[0][name].shape, strict=False))
            axis = next((i for i, (a, b) in sizes if a != b), None)
            if axis is None:
                continue
            for row in range(2):
                part = whole.take([row], axis)
                if difference({name: alone[row][name]}, {name: part}) > _ROWS:
                    return False
        return True

    def _output_axes(self) -> tuple[dict[str, int | None], dict[str, int], dict[str, int]]:
        """(output → position of its batch, None where it has none; rank of each as it was run; the size of the first
        axis of those that do not say it)."""
        names, rows = [spec.name for spec in self.source.outputs], fixed_rows(self.plans)
        named = {spec.name: _named_batch(spec, self.plans) for spec in self.source.outputs}
        stay = not any(_elsewhere(spec, self.plans) for spec in self.source.outputs)
        if stay and rows != 1 and all(plan.batch == 0 for plan in self.plans):
            return dict.fromkeys(names, 0), {}, {}
        try:
            recipe, run = self.accepted
        except ConfigError:
            if stay and _one_row(self.plans):  # then nothing tells, and nothing must be known
                return dict.fromkeys(names, 0), {}, {}
            raise
        shapes = [self._shapes(recipe, run, batch) for batch in (1, 2, 3)]
        first = shapes[0]
        assert first is not None  # the recipe was accepted with one sample
        for factor in _LARGER if rows == 1 else ():  # until axes of other things are not 1 as well
            if any(len(shape) > 2 and shape[0] == 1 and shape.count(1) > 1 for shape in first.values()):
                larger = replace(recipe, size=recipe.size * factor)
                if (shown := self._shapes(larger, run, 1)) is not None:
                    recipe, first = larger, shown

        def changing(name: str) -> int | None:
            two, three = shapes[1:]
            pairs = () if two is None or three is None else zip(two[name], three[name], strict=False)
            return next((axis for axis, pair in enumerate(pairs) if pair == (2, 3)), None)

        batched = any(plan.batch is not None for plan in self.plans)
        counted = self._counted(recipe, run, rows) if rows is not None and batched else {}
        states = {out: plan for out, into in self.interface.state for plan in self.plans if plan.name == into}
        found: dict[str, int | None] = {}
        sized: dict[str, int] = {}
        for spec in self.source.outputs:
            name, places = spec.name, counted.get(spec.name, [])
            if name in states:
                axis = states[name].batch
            elif (measured := changing(name)) is not None:
                axis = measured
            elif named[name] or (named[name] == 0 and rows is None):
                axis = named[name]
            elif rows is not None:
                shared = rows > 1 and first[name][:1] != (rows,)
                axis = 0 if 0 in places or shared else places[0] if len(places) == 1 else None
            else:
                ones = [i for i, size in enumerate(first[name]) if size == 1]
                axis = 0 if 0 in ones or len(ones) != 1 else ones[0]
            found[name] = axis
            if rows is not None and axis in places and axis < len(spec.shape) and spec.shape[axis] != rows:
                sized[name] = rows
        return found, {name: len(first[name]) for name in names}, sized

    def _counted(self, recipe: Recipe, run: Run, rows: int) -> dict[str, list[int]]:
        """Output → axes that may count the samples of a call: that declare so many, or declare nothing, have so many
        and turn round with the samples."""
        feeds = recipe.feeds(self.plans, 1, 1)
        turned = {p.name: feeds[p.name] if p.batch is None else np.flip(feeds[p.name], p.batch) for p in self.plans}
        whole, back = (run({**self.constants, **one}) for one in (feeds, turned))
        found: dict[str, list[int]] = {}
        for name, shape in ((spec.name, spec.shape) for spec in self.source.outputs):
            array = whole[name]
            declared = shape if len(shape) == array.ndim else (None,) * array.ndim
            for axis in (axis for axis, size in enumerate(array.shape) if size == rows):
                turns = rows == 1 or difference({name: np.flip(array, axis)}, {name: back[name]}) <= _ROWS
                if declared[axis] == rows or (turns and not isinstance(declared[axis], int)):
                    found.setdefault(name, []).append(axis)
        return found

    def _shapes(self, recipe: Recipe, run: Run, batch: int) -> dict[str, tuple[int, ...]] | None:
        try:
            found = run({**self.constants, **recipe.feeds(self.plans, batch, 0)})
        except RUNTIME_ERRORS:  # a fixed batch
            return None
        return {name: array.shape for name, array in found.items()}

    # --- the proof ---

    def _proven(self, target: Path) -> list[PreparationStep]:
        if {step.name for step in self.steps} == {"axes"}:
            return self.steps  # not a node has changed
        recipe, run = self.accepted
        try:
            if self.noise:
                run = runner_of(stilled(self.original), self.source.path)
            prepared = runner_of(_silent(self.proto), target) if self.noise else runner(target)
        except RUNTIME_ERRORS as error:
            raise self._not_proven(f"cannot be opened: {_line(error)}") from error
        worst, samples = 0.0, 0
        for batch, seed in ((1, 0), (2, 1), (3, 2)):
            if batch > 1 and (fixed_rows(self.plans) or self._shapes(recipe, run, batch) is None):
                continue
            feeds = recipe.feeds(self.plans, batch, seed)
            ours = {
                name: to_prepared(self.outputs.get(name, 0), array)
                for name, array in run({**self.constants, **feeds}).items()
            }
            try:
                theirs = prepared({plan.name: to_prepared(plan.batch, feeds[plan.name]) for plan in self.plans})
            except RUNTIME_ERRORS as error:
                raise self._not_proven(f"fails where the source runs: {_line(error)}") from error
            worst, samples = max(worst, difference(ours, theirs)), samples + batch
        if not worst <= self.tolerance:
            rule = f"does not give what the source gives: a difference of {worst:.3g} of the largest value"
            raise self._not_proven(rule)
        figures = (("largest_difference", worst), ("samples", float(samples)))
        return [
            step if step.name == "axes" else replace(step, figures=(*step.figures, *figures)) for step in self.steps
        ]

    def _not_proven(self, rule: str) -> _NotProven:
        names = ", ".join(step.name for step in self.steps)
        hint = "Export the model with a newer opset, or with what these steps do done beforehand."
        return _NotProven(f"the prepared model {rule} (steps: {names}).", file=self.source.path, hint=hint)


def _row(plans: Sequence[PortPlan], feeds: Feeds, row: int) -> Feeds:
    return {
        p.name: feeds[p.name]
        if p.batch is None or isinstance(p.dims[p.batch], int)
        else feeds[p.name].take([row], p.batch)
        for p in plans
    }


def _silent(proto: ModelProto) -> ModelProto:
    """The prepared model with its tables of noise at zero, which is as `stilled` has the source."""
    model = copied(proto)
    for tensor in model.graph.initializer:
        if TABLE_NAME in tensor.name and tensor.data_type == TensorProto.FLOAT:
            tensor.raw_data = bytes(len(tensor.raw_data))
    return model


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
