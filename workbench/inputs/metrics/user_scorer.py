"""Scores by the user's own function, or by a library's, in a process of its own.

    def score(outputs, targets): ...                        # the parameters that it names are what it is given

outputs: name → array [n, …]; targets: list of n, whatever the data say of each sample; reference: the float model's
outputs; inputs: what the model was fed; info: {"indices", "lengths", "labels"}; options: those of the manifest.
It returns scores [n]; or (numerators [n], denominators [n]), whose sums' ratio is the metric; or a mapping of name to
either, of which the first, or the one that the manifest names, is the primary metric.

Whose fault an exception is: before the function has scored anything, the file's, which ends the run (ConfigError);
afterwards it is known to work on the float model's outputs, so it is the candidate's (MeasureError), and the sweep goes
on. A result of the wrong form is always the file's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.dataset.metric_reader import MetricUse
from workbench.inputs.library_metrics import NAMED, NamedMetric
from workbench.inputs.metrics.outcomes import FloatArray, MeasuredOutcomes, measured
from workbench.inputs.metrics.score import Outputs, Scorer
from workbench.user_code import UserCodeError, UserProcess, process_of
from workbench.values.errors import ConfigError, MeasureError, nearest
from workbench.values.model import Model

PARAMETERS = ("outputs", "targets", "reference", "inputs", "info", "options")
_TOLERANCE = 1e-6
"""Of a bound: shares are sums of float32 numbers."""
_MOST_NAMED = 4
_proven: set[MetricUse] = set()
"""Metrics that have scored a batch in this process."""


def library_metric(use: MetricUse) -> NamedMetric | None:
    """What is known of a metric that was named rather than written; None of a user's own."""
    known = NAMED.get(use.name)
    return known if known is not None and known.file == use.code.file else None


class UserScorer(Scorer):
    """A `Scorer` by `metric:`. Starts the function's process when it is first asked something."""

    def __init__(self, use: MetricUse, dataset: Dataset) -> None:
        self._use, self._data = use, dataset
        self._names: tuple[str, ...] = (use.name,)

    @property
    def needs_reference(self) -> bool:
        return "reference" in self._asked()

    @property
    def primary(self) -> str:
        return self._names[0]

    @property
    def unit(self) -> str:
        return self._use.unit_of(self.primary)

    @property
    def higher(self) -> bool:
        return self._use.higher_of(self.primary)

    @property
    def identity(self) -> Mapping[str, object]:
        return {"metric": self._use.identity, "labels": list(self._data.labels)}

    def check(self, model: Model) -> None:
        """Starts the function's process, and asks nothing of it yet."""
        self._asked()

    def score(self, outputs: Outputs, batch: Batch, reference: Outputs | None) -> MeasuredOutcomes:
        return self._scores(self._call(self._arguments(outputs, batch, reference), outputs, batch), batch, outputs)

    def answers(self, answers: Sequence[Any], batch: Batch, reference: Sequence[Any]) -> MeasuredOutcomes:
        """The same of a pipeline's answers: lists stand for `outputs` and `reference`."""
        arguments = self._arguments({}, batch, {})
        given = {"outputs": list(answers), "reference": list(reference)}
        arguments.update({name: value for name, value in given.items() if name in arguments})
        return self._scores(self._call(arguments, {}, batch), batch, {})

    def _scores(self, found: Any, batch: Batch, outputs: Outputs) -> MeasuredOutcomes:
        named = self._by_name(found)
        columns = [self._fractions(name, value, batch, outputs) for name, value in named.items()]
        _proven.add(self._use)
        self._names, use = tuple(named), self._use
        metrics = [(name, use.unit_of(name), use.higher_of(name), use.bounds_of(name), "ratio") for name in named]
        tops, lows = (np.stack(each, axis=1) for each in zip(*columns, strict=True))
        return measured(metrics, (tops, lows))

    def _process(self) -> UserProcess:
        code = self._use.code
        try:
            return process_of(code)
        except UserCodeError as error:
            raise error.config("cannot be imported: {}." if error.kind == "import" else "{}.", key=code.key) from error

    def _asked(self) -> tuple[str, ...]:
        """The parameters that the function names, of those that it may."""
        code, parameters = self._use.code, self._process().parameters
        if parameters is None or any(each["kind"] == "VAR_KEYWORD" for each in parameters):
            return PARAMETERS
        asked = []
        for each in parameters:
            name = each["name"]
            if name in PARAMETERS and each["kind"] != "POSITIONAL_ONLY":
                asked.append(name)
            elif each["required"] and each["kind"] != "VAR_POSITIONAL":
                raise self._error(
                    f"{code.function}() has a parameter {name!r}, which a metric is not given.",
                    nearest(name, PARAMETERS),
                )
        if "outputs" not in asked:
            raise self._error(
                f"{code.function}() has no parameter 'outputs'.", f"Write def {code.function}(outputs, targets): …"
            )
        return tuple(asked)

    def _arguments(self, outputs: Outputs, batch: Batch, reference: Outputs | None) -> dict[str, Any]:
        asked = self._asked()
        targets = None if batch.targets is None else list(batch.targets)
        if batch.truths is not None and any(truth is not None for truth in batch.truths):
            targets = list(batch.truths)
        if targets is None and "targets" in asked and "reference" not in asked:
            raise self._error(
                f"{self._use.code.function}() asks for targets, and the data of {self._data.path.name} have none.",
                "Give an array 'labels', or the second value of a loader's tuples; or ask for reference, which is "
                "what the float model answers.",
            )
        given: dict[str, Any] = {
            "outputs": dict(outputs),
            "targets": targets,
            "reference": None if reference is None else dict(reference),
            "inputs": dict(batch.feeds),
            "info": {"indices": batch.indices, "lengths": batch.lengths, "labels": list(self._data.labels)},
            "options": json.loads(self._use.options),
        }
        return {name: given[name] for name in asked}

    def _call(self, arguments: dict[str, Any], outputs: Outputs, batch: Batch) -> Any:
        try:
            return self._process().call(arguments)
        except UserCodeError as error:
            some = ", ".join(str(row) for row in batch.indices[:_MOST_NAMED].tolist())
            more = ", …" if len(batch) > _MOST_NAMED else ""
            failed = error.config(f"failed for samples {some}{more}: {{}}.")
            if self._use in _proven and error.kind in ("call", "died"):
                raise MeasureError(f"the metric {failed}{_of_nan(outputs)}") from error
            raise failed from error

    def _by_name(self, found: Any) -> dict[str, Any]:
        """Metric → its scores, the primary one first."""
        if not isinstance(found, dict):
            return {self._use.name: found}
        if not found:
            raise self._error(f"{self._use.code.function}() returned no scores.")
        for name in found:
            if not name or len(name) > 60 or not name.isprintable():
                raise self._error(f"{name!r} is no name of a metric.", "Use a short word, such as psnr.")
        if self._use.name in found:
            first = self._use.name
        elif self._use.name == self._use.code.function:
            first = next(iter(found))
        else:
            raise self._error(
                f"{self._use.code.function}() returned no {self._use.name!r}, the manifest's primary metric.",
                nearest(self._use.name, found),
            )
        return {first: found[first], **{name: value for name, value in found.items() if name != first}}

    def _fractions(self, name: str, value: Any, batch: Batch, outputs: Outputs) -> tuple[FloatArray, FloatArray]:
        pair = isinstance(value, tuple) and len(value) == 2 and all(np.ndim(part) == 1 for part in value)
        numerators = self._numbers(name, value[0] if pair else value, batch)
        denominators = self._numbers(name, value[1], batch) if pair else np.ones(len(batch))
        for array in (numerators, denominators):
            wrong = ~np.isfinite(array)
            if wrong.any():
                row = int(np.argmax(wrong))
                said = f"{name} is {array[row]} for sample {int(batch.indices[row])}."
                if reason := _of_nan(outputs):
                    raise MeasureError(f"{said}{reason}")
                raise self._error(said, "Give a number, or a denominator of 0 for a sample that does not count.")
        if (denominators < 0).any():
            raise self._error(f"{name} has a negative denominator, {denominators.min():g}.")
        bounds = self._use.bounds_of(name)
        low, high = -np.inf if bounds[0] is None else bounds[0], np.inf if bounds[1] is None else bounds[1]
        values = np.divide(numerators, denominators, out=np.full(len(batch), np.nan), where=denominators > 0)
        slack = _TOLERANCE * max(1.0, *(abs(end) for end in bounds if end is not None), 0.0)
        outside = (values < low - slack) | (values > high + slack)
        if outside.any():
            row = int(np.argmax(outside))
            ends = f"{low:g} to {high:g}".replace("inf", "∞")
            raise self._error(
                f"{name} is {values[row]:g} for sample {int(batch.indices[row])}, outside of {ends}.",
                f"Declare what it can be: metric: {{function: {self._use.code.file.name}:{self._use.code.function}, "
                "bounds: [0, 60], unit: dB}; null stands for no bound.",
            )
        return numerators, denominators

    def _numbers(self, name: str, value: Any, batch: Batch) -> FloatArray:
        try:
            found = np.asarray(value)
        except ValueError:  # lists of different lengths
            found = np.asarray(None)
        if found.dtype.kind not in "fiub" or found.shape != (len(batch),):
            got = f"{found.dtype} {list(found.shape)}" if found.dtype.kind in "fiubcUS" else repr(value)[:100]
            raise self._error(
                f"{self._use.code.function}() gave {got} as {name} of {len(batch)} samples.",
                "Give one number for each sample, numpy [n], or a tuple of numerators [n] and denominators [n].",
            )
        return found.astype(np.float64)

    def _error(self, rule: str, hint: str | None = None) -> ConfigError:
        return ConfigError(rule, file=self._use.code.file, key=self._use.code.key, hint=hint)


def _of_nan(outputs: Outputs) -> str:
    """A sentence where an output holds no numbers."""
    for name, array in outputs.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            return f" The output {name!r} holds NaN."
    return ""
