"""The part of an experiment that is a language model's: its folder, its texts, what its times are modelled for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from workbench.inputs.dataset import Dataset
from workbench.inputs.dataset.language import read_language_manifest
from workbench.space.space import SearchSpace
from workbench.targets import open_target
from workbench.targets.language import language_target
from workbench.values.dimension import MOST_BATCH
from workbench.values.documents.yaml_reader import Section
from workbench.values.measurement import LanguageLoad
from workbench.values.model import Model

LOAD = "load"
_MOST_TOKENS = 1 << 24
_OF_SERVICES = ("service_", "latency_", "throughput_", "speedup", "startup_s", "peak_memory_mb", "int8_ops", "float_")
"""Metrics that nothing measures of a language model: its times are modelled, under names of their own."""


def read_load(top: Section) -> LanguageLoad | None:
    """`load: {batch: 8, prompt: 512, context: 2048}`; None where the file says nothing of it."""
    if not top.has(LOAD):
        return None
    usual = LanguageLoad()
    with top.section(LOAD) as section:
        batch = section.integer("batch", usual.batch, minimum=1, maximum=MOST_BATCH)
        prompt = section.integer("prompt", usual.prompt, minimum=1, maximum=_MOST_TOKENS)
        context = section.integer("context", max(usual.context, prompt), minimum=1, maximum=_MOST_TOKENS)
    return LanguageLoad(batch=batch, prompt=prompt, context=context)


def read_question_of_language(
    top: Section, space: SearchSpace, folder: Path, manifest: Path, asked: Iterable[tuple[str, Section, str]]
) -> tuple[Model, Dataset]:
    """Model and texts.

    Args:
        asked: metric of an objective or a constraint, and where it stands.

    Raises:
        ConfigError: the folder, the manifest or a text is wrong, or the experiment asks for what nobody can measure.
        ToolchainError: the packages for language models are not installed.
    """
    if len(space.targets) > 1:
        raise top.error("search_space", f"{space.path} is for several targets; a language model is searched for one.")
    if top.has("service"):
        raise top.error("service", "a language model's service is not searched.", "Leave it out; see `load`.")
    target = language_target(open_target(space.targets[0]))
    model = target.read_model(folder)
    dataset = read_language_manifest(manifest, model, target)
    other = {"perplexity": "kl", "kl": "perplexity"}[dataset.measure]
    for name, section, place in asked:
        if name == other:
            rule = f"{manifest.name} is measured by {dataset.measure}."
            raise section.error(place, rule, f"Write measure: {name} there.")
        if name == "accuracy_drop_pp":
            unit = "in percent of the perplexity" if dataset.measure == "perplexity" else "in nats"
            raise section.error(place, f"{dataset.measure} is no share of 0..1.", f"Write accuracy_drop, {unit}.")
        if name.startswith(_OF_SERVICES):
            hint = "Write perplexity, size_mb, prefill_ms, decode_ms or kv_kb_per_token."
            raise section.error(place, f"{name} is not measured of a language model.", hint)
    return model, dataset
