"""Scores by what outputs mean: every output with its own judge, the first one's primary metric as 'accuracy'."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.inputs.dataset.batch import Batch
from workbench.inputs.metrics.agreement.judge import Fractions, Judge, MetricSpec, joined, one_of, output_of
from workbench.inputs.metrics.agreement.judges import AGAINST, FLOAT, MEANINGS, LabelledJudge, judges_of
from workbench.inputs.metrics.extents import Extents, own_parts
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, measured
from workbench.inputs.metrics.score import Outputs, Scorer
from workbench.values.documents.canonical import encode
from workbench.values.errors import ConfigError, MeasureError, nearest
from workbench.values.interface import OutputUse
from workbench.values.metrics import Metric
from workbench.values.model import Model
from workbench.values.objectives import Constraint

_PRIMARY = "primary"
"""Option of the first output: which of its metrics is the primary one."""
_LIMITED = "limited"
"""Option of any output: false, and it only informs where it has no limits of its own."""
_FOREIGN = re.compile(r"[^A-Za-z0-9_/-]")
"""Of an output's name, what a metric's name cannot hold in a tracker."""


class MeaningScorer(Scorer):
    """Agreement with the float model, and with labels where an output has some, output by output.

    A metric is named by itself where one output alone is compared, and OUTPUT.METRIC where there are several.
    """

    def __init__(
        self,
        *,
        uses: Sequence[OutputUse],
        file: Path,
        declared: bool,
        extents: Extents | None = None,
    ) -> None:
        """
        Args:
            file: the manifest, for errors.
            declared: the manifest says what outputs mean; else the model and the code did.
            extents: what tells of padded samples where their outputs end; None where nothing is padded.
        """
        self.uses, self.file, self._declared, self._extents = tuple(uses), file, declared, extents
        with _placed_in(file):
            for use in self.uses:
                rules = MEANINGS[use.meaning]
                known = (*rules.options, *((_PRIMARY, _LIMITED, AGAINST) if rules.make is not None else ()))
                for name, _ in use.options:
                    _known(name, known, f"{use.meaning} has no option {name!r}", f"outputs.{use.name}.{name}")
            self.judges: tuple[Judge, ...] = judges_of(self.uses)
            self.order = tuple(_order(judge) for judge in self.judges)
            for judge in self.judges:
                metrics, key = [spec.name for spec in judge.metrics], f"outputs.{judge.use.name}.limits"
                for name, _ in judge.use.limits:
                    _known(name, metrics, f"{judge.use.meaning} has no metric {name!r}", f"{key}.{name}")
        several = len(self.judges) > 1
        self.specs: tuple[MetricSpec, ...] = tuple(
            replace(judge.metrics[at], name=self._name(judge, judge.metrics[at].name, several))
            for judge, order in zip(self.judges, self.order, strict=True)
            for at in order
        )

    @property
    def needs_reference(self) -> bool:
        return True

    @property
    def primary(self) -> str:
        return self.specs[0].name

    @property
    def unit(self) -> str:
        return self.specs[0].unit

    @property
    def higher(self) -> bool:
        return self.specs[0].higher

    @property
    def identity(self) -> Mapping[str, object] | None:
        return {"outputs": [encode(replace(use, reason="")) for use in self.uses]} if self._declared else None

    @property
    def has_labels(self) -> bool:
        """An output is compared with what the data say of each sample."""
        return any(isinstance(judge, LabelledJudge) for judge in self.judges)

    def check(self, model: Model) -> None:
        """Every output that is judged is one of the model's."""
        given = {spec.name: spec for spec in model.outputs}
        with _placed_in(self.file):
            for use in self.uses:
                _known(use.name, given, f"the model has no output {use.name!r}", f"outputs.{use.name}")
                if use.meaning == "ids" and np.dtype(given[use.name].dtype).kind == "f":
                    rule = f"output {use.name!r} holds {given[use.name].dtype}, and ids are whole numbers."
                    raise ConfigError(rule, key=f"outputs.{use.name}", hint="Call it logits, probabilities or values.")
            for judge in self.judges:
                for name in judge.reads:
                    rule = f"the model has no output {name!r}, which {judge.use.name!r} refers to"
                    _known(name, given, rule, f"outputs.{judge.use.name}")

    def spec_of(self, metric: str) -> tuple[MetricSpec, OutputUse]:
        """A metric by the name that constraints have, and the output it is of."""
        columns = [judge for judge, order in zip(self.judges, self.order, strict=True) for _ in order]
        return next((spec, judge.use) for spec, judge in zip(self.specs, columns, strict=True) if spec.name == metric)

    def check_labels(self, batch: Batch) -> None:
        """Raises ConfigError for a sample without labels where an output has them, or with some of another kind."""
        with _placed_in(self.file):
            for judge in self.judges:
                if isinstance(judge, LabelledJudge):
                    judge.check(batch)

    def score(self, outputs: Outputs, batch: Batch, reference: Outputs | None) -> MeasuredOutcomes:
        if reference is None:
            raise ValueError("agreement is scored against the float model's outputs")
        tops, lows = [], []
        for judge, order in zip(self.judges, self.order, strict=True):
            with _placed_in(self.file):
                numerators, denominators = self._judged(judge, outputs, reference, batch)
            tops.append(numerators[:, order])
            lows.append(denominators[:, order])
        specs = [(spec.name, spec.unit, spec.higher, spec.bounds, spec.reduce) for spec in self.specs]
        return measured(specs, (np.concatenate(tops, axis=1), np.concatenate(lows, axis=1)))

    def _judged(self, judge: Judge, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        """Sample by sample where samples are padded along named axes, each without its padding."""
        for name in judge.reads:
            for array in (output_of(outputs, name), output_of(reference, name)):
                if array.shape[:1] != (len(batch),) and (not array.ndim or len(batch) > 1):
                    raise MeasureError(f"output {name!r} is {list(array.shape)} for {len(batch)} samples.")
        if self._extents is None or judge.use.meaning == "boxes":  # boxes lie where they lie
            return judge.judge(outputs, reference, batch)
        alike = all(outputs[name].shape == reference[name].shape for name in judge.reads if name in outputs)
        if alike and not self._extents.padded(batch):
            return judge.judge(outputs, reference, batch)
        parts = []
        for row in range(len(batch)):
            ours, theirs = (own_parts(of, judge.reads, batch, row, self._extents) for of in (outputs, reference))
            parts.append(judge.judge(ours, theirs, one_of(batch, row)))
        return joined(parts)

    def limits(self, *, every: bool = False) -> tuple[Constraint, ...]:
        """Of every output its own limits; where it has none, those of its meaning, but for the primary output, whose
        limit is the experiment's.

        Args:
            every: the primary output too has those of its meaning, as where there is no experiment.
        """
        found = []
        several = len(self.judges) > 1
        for number, judge in enumerate(self.judges):
            specs = {spec.name: spec for spec in judge.metrics}
            limited = (number > 0 or every) and dict(judge.use.options).get(_LIMITED, True) is not False
            usual = MEANINGS[judge.use.meaning].limits if limited else {}
            before = FLOAT if AGAINST in dict(judge.use.options) else ""  # how right the float model is, nobody knows
            limits = dict(judge.use.limits) or {before + metric: limit for metric, limit in usual.items()}
            for name, limit in limits.items():
                known = Metric(
                    direction="maximize" if specs[name].higher else "minimize",
                    unit=specs[name].unit,
                    about=f"output {judge.use.name}: {specs[name].about}",
                )
                found.append(Constraint(metric=self._name(judge, name, several), limit=limit, of_output=known))
        return tuple(found)

    def _name(self, judge: Judge, metric: str, several: bool) -> str:
        return f"{_FOREIGN.sub('_', judge.use.name)}.{metric}" if several else metric


@contextlib.contextmanager
def _placed_in(file: Path) -> Iterator[None]:
    """Errors that name no file are about this one."""
    try:
        yield
    except ConfigError as error:
        if error.file is not None:
            raise
        raise ConfigError(error.rule, file=file, key=error.key, hint=error.hint) from error


def _order(judge: Judge) -> tuple[int, ...]:
    """Columns of a judge's metrics, the primary one first."""
    names = [spec.name for spec in judge.metrics]
    chosen = dict(judge.use.options).get(_PRIMARY, names[0])
    able = [spec.name for spec in judge.metrics if spec.reduce == "ratio"]
    rule = f"{chosen!r} is no metric that {judge.use.meaning} can be searched by ({', '.join(able)})"
    _known(str(chosen), able, rule, f"outputs.{judge.use.name}.{_PRIMARY}")
    first = names.index(str(chosen))
    return (first, *(at for at in range(len(names)) if at != first))


def _known(name: str, known: Collection[str], rule: str, key: str) -> None:
    if name not in known:
        raise ConfigError(f"{rule}.", key=key, hint=nearest(name, known) if known else None)
