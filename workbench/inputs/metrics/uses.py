"""What every output of a model means for a dataset: as its manifest says, and for the rest as the model tells."""

from __future__ import annotations

import functools

from workbench.graph.read import load_graph
from workbench.graph.structure import handed_through
from workbench.inputs.dataset import Dataset
from workbench.inputs.metrics.inference import PASSED, InferredOutput, infer_outputs
from workbench.values.errors import ConfigError
from workbench.values.interface import Meaning, OutputUse
from workbench.values.model import Model


def uses_of(dataset: Dataset, model: Model | None) -> tuple[OutputUse, ...]:
    """Every output, those of the manifest first and in its order; what was inferred has its reason.

    An output that no candidate can change judges nothing, whatever the manifest says it means.
    """
    declared = dataset.interface.outputs
    if model is None:
        return declared
    passed = passed_outputs(model)
    if passed and passed.issuperset(spec.name for spec in model.outputs):
        rule = f"every output ({', '.join(sorted(passed))}) {PASSED}."
        raise ConfigError(rule, file=dataset.path, key="outputs", hint="Export the model with what it computes.")
    declared = tuple(
        OutputUse(name=use.name, meaning="ignored", reason=PASSED)
        if use.name in passed and use.meaning not in ("ignored", "state")
        else use
        for use in declared
    )
    named = {use.name for use in declared}
    missing = [spec.name for spec in model.outputs if spec.name not in named]
    if not missing:
        return declared
    found = [one for one in _inferred(model, dataset.interface.state) if one.name in missing]
    if declared:  # scores that a manifest's boxes refer to need no line of their own
        beside = {str(value): use for use in declared for key, value in use.options if key in ("scores", "labels")}
        found = [_beside(one) if one.name in beside else one for one in found]
    if not declared and "logits" in missing:
        found = [_informing(one) for one in sorted(found, key=lambda one: one.name != "logits")]
    unknown = [one for one in found if one.use is None]
    if unknown:
        raise _cannot_know(unknown, dataset)
    return (*declared, *(one.use for one in found if one.use is not None))


def not_by_distance(dataset: Dataset) -> frozenset[str]:
    """Outputs that a manifest gives a meaning in which distance means nothing: ids, waveforms, what is ignored.

    A model of speech may shift a waveform by a few samples: heard as the same, and far in a cosine.
    """
    return frozenset(use.name for use in dataset.interface.outputs if use.meaning in ("ids", "signal", "ignored"))


def _beside(one: InferredOutput) -> InferredOutput:
    use = OutputUse(name=one.name, meaning="scores", reason="the manifest's boxes refer to it")
    return InferredOutput(name=one.name, use=use, reason=use.reason)


def _informing(one: InferredOutput) -> InferredOutput:
    """An output named 'logits' is what such a model is scored by; what nobody can name beside it only informs."""
    if one.use is not None:
        return one
    reason = f"{one.reason}: compared as values beside the logits, without a limit"
    use = OutputUse(name=one.name, meaning="values", options=(("limited", False),), reason=reason)
    return InferredOutput(name=one.name, use=use, reason=reason)


def _cannot_know(unknown: list[InferredOutput], dataset: Dataset) -> ConfigError:
    first = unknown[0]
    written = ", ".join(f"{one.name}: {_example(one)}" for one in unknown)
    others = sorted({meaning for one in unknown for meaning in one.candidates[1:]} | {"ignored"})
    return ConfigError(
        f"nothing tells what the output {first.name!r} means: {first.reason}.",
        file=dataset.path,
        key="outputs",
        hint=f"Write outputs: {{{written}}} (or {', '.join(others)}), or let `workbench init` look at its values.",
    )


def _example(one: InferredOutput) -> str:
    likeliest: Meaning = one.candidates[0]
    return "{meaning: boxes, scores: SCORES, format: xyxy, score: 0.5, iou: 0.5}" if likeliest == "boxes" else likeliest


@functools.lru_cache(maxsize=8)
def passed_outputs(model: Model) -> frozenset[str]:
    """Outputs that no candidate can change."""
    return frozenset() if model.is_language_model else handed_through(load_graph(model))


@functools.lru_cache(maxsize=8)
def _inferred(model: Model, state: tuple[tuple[str, str], ...]) -> tuple[InferredOutput, ...]:
    return infer_outputs(model, load_graph(model), state=state)
