"""What the outputs mean: as the user says, as the model and its values tell, or asked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from workbench.commands.init.interface import Ask
from workbench.commands.init.labels import first_label, told_by_labels
from workbench.evaluation.float_run import FloatRun
from workbench.evaluation.metric_check import refuse_shared
from workbench.graph.read import load_graph
from workbench.inputs.metrics import InferredOutput, infer_outputs
from workbench.inputs.metrics.agreement import AGAINST, reading_of
from workbench.inputs.metrics.inference import PASSED
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import Meaning, OutputUse
from workbench.values.model import Model

_INFORMS = ("state", "values", "ignored")
"""Meanings that say little of what a model is for: they stand behind the others, since the first is the primary one."""


def meanings_of(
    model: Model,
    run: FloatRun,
    state: Sequence[tuple[str, str]],
    written: Mapping[str, str],
    ask: Ask | None,
) -> tuple[OutputUse, ...]:
    """Every output, that which decides first.

    Args:
        written: output → meaning, of `--output NAME=MEANING`.

    Raises:
        ConfigError: no such output or meaning, or nothing tells what an output means and nobody can be asked.
    """
    names = [spec.name for spec in model.outputs]
    for name, word in written.items():
        if name not in names:
            raise ConfigError(f"the model has no output {name!r}.", key="--output", hint=nearest(name, names))
        if word.partition(":")[0] not in get_args(Meaning):
            rule = f"{word!r} is no meaning of an output."
            raise ConfigError(rule, key=f"--output {name}", hint=nearest(word, get_args(Meaning)))
    found = infer_outputs(model, load_graph(model), run.outputs, state=state)
    uses: list[OutputUse] = []
    unknown: list[InferredOutput] = []
    for one in found:
        if one.name in written and (one.use is None or one.use.reason != PASSED):
            uses.append(_as_written(one, written[one.name]))
        elif one.use is not None:
            uses.append(one.use)
        elif (told := told_by_labels(one.name, run)) is not None:
            uses.append(OutputUse(name=one.name, meaning=told[0], reason=told[1]))
        elif ask is not None:
            question = f"What does the output {one.name!r} mean? ({one.reason})"
            uses.append(_as_written(one, ask(question, (*_choices(one, run), "ignored"))))
        else:
            unknown.append(one)
    batch, outputs = run.rows[0]
    every = [*uses, *(OutputUse(name=one.name, meaning="values") for one in unknown)]
    refuse_shared(outputs, every, batch, model.path if model.origin is None else model.origin.path, model)
    if unknown:
        raise _cannot_know(unknown, model, run)
    return tuple(sorted(uses, key=lambda use: use.meaning in _INFORMS))


def _as_written(one: InferredOutput, written: str) -> OutputUse:
    """`boxes`, or `boxes:scores=scores,format=xyxy,score=0.7`."""
    word, _, rest = written.partition(":")
    options: dict[str, str | int | float | bool] = {}
    reason = "as you say"
    if one.use is not None and one.use.meaning == word:  # with what was found about it
        options, reason = dict(one.use.options), f"{one.use.reason}; so said"
    for part in filter(None, rest.split(",")):
        key, equal, value = part.partition("=")
        if not equal:
            rule = f"{part!r} is no option."
            raise ConfigError(rule, key=f"--output {one.name}", hint="Write NAME=MEANING:OPTION=VALUE,OPTION=VALUE.")
        options[key.strip()] = _value(value.strip())
    meaning: Meaning = word  # type: ignore[assignment]  # checked by the caller
    return OutputUse(name=one.name, meaning=meaning, options=tuple(sorted(options.items())), reason=reason)


def _value(text: str) -> str | int | float | bool:
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, bool | int | float) else text


def _against(output: str, label: Any, *, first: bool) -> str:
    """The option for labels: of several outputs one alone can have those without a name."""
    if isinstance(label, Mapping):
        return f":{AGAINST}=labels.{output}" if output in label else ""
    return f":{AGAINST}=labels" if first and label is not None else ""


def _choices(one: InferredOutput, run: FloatRun) -> tuple[str, ...]:
    """What would fit, the likeliest first: boxes with their options, where its values can be read as boxes with shares
    for scores."""
    read = reading_of(OutputUse(name=one.name, meaning="boxes"), run.rows)
    return (read, *one.candidates) if "class_column" in read and "activation" not in read else one.candidates


def _cannot_know(unknown: Sequence[InferredOutput], model: Model, run: FloatRun) -> ConfigError:
    label = first_label(run)
    choices = {one.name: (*_choices(one, run), "ignored") for one in unknown}
    told = "; ".join(f"{one.name!r} ({one.reason}): {', '.join(choices[one.name])}" for one in unknown)
    said = (
        f"{one.name}={choices[one.name][0]}{_against(one.name, label, first=not place)}"
        for place, one in enumerate(unknown)
    )
    written = " ".join(f"--output {shlex.quote(one)}" for one in said)
    which = "an output means" if len(unknown) == 1 else "some outputs mean"
    return ConfigError(
        f"nothing tells what {which}, and a wrong guess would give a wrong accuracy. {told}.",
        file=model.origin.path if model.origin is not None else model.path,
        key="outputs",
        hint=f"Say it, such as {written}",
    )
