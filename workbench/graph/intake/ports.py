"""Where samples are counted: the batch axis of every input, as declared, by the model's names, or by its sizes.

plans = plan_inputs(specs, interface)     # ConfigError: what only the user can know, with what to write
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import BATCH, InputUse, Interface
from workbench.values.model import TensorSpec, axes_text

Dims = tuple[int | str | None, ...]

_LENGTH_NAME = re.compile(r"(?i).*(?:seq|len|time|frame|step|token|char|phoneme|width|height|sample).*|^[TLSHW]$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPlan:
    """One input as the source has it, and where its samples are counted.

    Attributes:
        dims: in the source's order, with the names and sizes that are declared.
        batch: position of the batch axis; None where there is none, so that one call is one sample.
        guessed: nobody declared it and no name says it: running the model has to bear it out.
    """

    name: str
    dtype: str
    dims: Dims
    batch: int | None
    guessed: bool = False


def is_batch_name(name: object) -> bool:
    return isinstance(name, str) and BATCH in name.lower()


def is_length_name(name: object) -> bool:
    return isinstance(name, str) and not is_batch_name(name) and _LENGTH_NAME.match(name) is not None


def plan_inputs(specs: Sequence[TensorSpec], interface: Interface) -> tuple[PortPlan, ...]:
    """A plan for every input that is fed; constants are left out."""
    uses = _uses(specs, interface)
    fed = [spec for spec in specs if uses[spec.name].constant is None]
    if not fed:
        raise ConfigError("every input is a constant, so that there is nothing to feed.", key="inputs")
    plans: dict[str, PortPlan] = {}
    for spec in fed:
        axes = uses[spec.name].axes
        if axes:
            plans[spec.name] = _declared(spec, axes)
        elif spec.shape and (named := [i for i, d in enumerate(spec.shape) if is_batch_name(d)]):
            plans[spec.name] = _plan(spec, named[0])
    for plan in _undeclared([spec for spec in fed if spec.name not in plans], list(plans.values())):
        plans[plan.name] = plan
    return tuple(plans[spec.name] for spec in fed)


def single(plans: Sequence[PortPlan]) -> bool:
    """Whether one call is one sample, because some input has no axis for more."""
    return any(plan.batch is None for plan in plans)


def fixed_rows(plans: Sequence[PortPlan]) -> int | None:
    """How many samples every call takes: 1 where some input has no axis for more; None where they leave it free."""
    sizes = {1 if plan.batch is None else plan.dims[plan.batch] for plan in plans}
    size = 1 if single(plans) else sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else None


def _uses(specs: Sequence[TensorSpec], interface: Interface) -> dict[str, InputUse]:
    names = [spec.name for spec in specs]
    for use in interface.inputs:
        if use.name not in names:
            raise ConfigError("the model has no such input.", key=f"inputs.{use.name}", hint=nearest(use.name, names))
    return {name: InputUse(name=name) for name in names} | {use.name: use for use in interface.inputs}


def _plan(spec: TensorSpec, batch: int | None, *, guessed: bool = False) -> PortPlan:
    return PortPlan(name=spec.name, dtype=spec.dtype, dims=spec.shape, batch=batch, guessed=guessed)


def _declared(spec: TensorSpec, axes: tuple[str | int, ...]) -> PortPlan:
    key = f"inputs.{spec.name}.axes"
    if len(axes) != len(spec.shape):
        raise ConfigError(
            f"{list(axes)} are {len(axes)} axes, the model's input has {len(spec.shape)}: {axes_text(spec.shape)}.",
            key=key,
            hint="Name every axis, or write its size.",
        )
    for given, own in zip(axes, spec.shape, strict=True):
        if isinstance(own, int) and given != own and not (given == BATCH):
            raise ConfigError(
                f"{given!r} stands where the model's own size is {own}: {axes_text(spec.shape)}.",
                key=key,
                hint=f"Write {own}, which cannot be changed here; only free axes get names or sizes.",
            )
    batch = axes.index(BATCH) if BATCH in axes else None
    dims: Dims = tuple(own if isinstance(own, int) else given for given, own in zip(axes, spec.shape, strict=True))
    return PortPlan(name=spec.name, dtype=spec.dtype, dims=dims, batch=batch)


def _undeclared(specs: Sequence[TensorSpec], known: Sequence[PortPlan]) -> list[PortPlan]:
    """Plans of inputs about which nobody says anything, in the light of those about which somebody does."""
    if not specs:
        return []
    counted = [plan.dims[plan.batch] for plan in known if plan.batch is not None]
    firsts = [spec.shape[0] for spec in specs if spec.shape]
    free = any(not isinstance(size, int) for size in counted)
    if not counted and not single(known):
        free = any(not isinstance(size, int) for size in firsts)
    if free:
        lengths = {d for plan in known for d in plan.dims if isinstance(d, str) and not is_batch_name(d)}
        return [_beside_free_batch(spec, lengths) for spec in specs]
    if single(known):
        return [_plan(spec, 0 if spec.shape and spec.shape[0] == 1 else None) for spec in specs]
    sizes = {size for size in (*counted, *firsts) if isinstance(size, int)}
    if len(sizes) <= 1 and all(spec.shape for spec in specs):
        return [_plan(spec, 0) for spec in specs]  # a batch fixed at that size, as far as one can see
    return [_beside_one_sample(spec) for spec in specs]


def _beside_free_batch(spec: TensorSpec, lengths: set[str]) -> PortPlan:
    if spec.shape and not isinstance(spec.shape[0], int) and spec.shape[0] not in lengths:
        return _plan(spec, 0, guessed=is_length_name(spec.shape[0]))
    free = [i for i, d in enumerate(spec.shape) if not isinstance(d, int) and d not in lengths]
    if len(free) == 1:
        return _plan(spec, free[0], guessed=True)
    if spec.shape and spec.shape[0] == 1 and len(spec.shape) > 1:
        return _plan(spec, 0)  # as before: one row for all, which is measured where it matters
    raise ConfigError(
        f"input {spec.name!r} of shape {axes_text(spec.shape)} has no axis for samples, which the other inputs have.",
        key=f"inputs.{spec.name}",
        hint=remedy(spec),
    )


def _beside_one_sample(spec: TensorSpec) -> PortPlan:
    if spec.shape and spec.shape[0] == 1:
        return _plan(spec, 0)
    ones = [i for i, d in enumerate(spec.shape) if d == 1]
    return _plan(spec, ones[0] if len(ones) == 1 else None, guessed=len(ones) == 1)


def remedy(spec: TensorSpec) -> str:
    """What to write about an input without an axis for samples, in the manifest or on the command line."""
    numbers = min(math.prod(size for size in spec.shape if isinstance(size, int)), 3)
    example = "16000" if not spec.shape else "[" + ", ".join(["1.0"] * numbers) + "]"
    return (
        f"Where it is the same for all samples write inputs: {{{spec.name}: {{constant: {example}}}}} in the manifest "
        f"(or --constant {spec.name}=…); where samples are counted on another axis, "
        f"inputs: {{{spec.name}: {{axes: [..., batch, ...]}}}}."
    )
