"""Writing the experiment file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbench.commands.init.data import Corpus
from workbench.commands.init.model import Outline
from workbench.commands.init.scalar import scalar
from workbench.targets import described

_CALIBRATION_SAMPLES = 128


def experiment_text(name: str, show: Callable[[Path], str], outline: Outline, corpus: Corpus) -> str:
    """The experiment file; `show` gives the path to write for a file."""
    batch = outline.fixed_batch or 8
    samples = min(_CALIBRATION_SAMPLES, corpus.calibration_size)
    if outline.fixed_batch is not None:  # such a model takes full batches only
        samples = max(batch, samples // batch * batch)
    judged = {
        "classification": "share of samples in the right class",
        "ner": "entity-level F1",
        "tensors": "share of samples with the float model's top answer, as there are no labels",
    }[corpus.task]
    return f"""\
# One experiment file is one question; the same file and seed ask it again. Paths are relative to this file.
#   workbench plan experiments/{name}.yaml      says what a sweep would cost
#   workbench sweep experiments/{name}.yaml     searches; stop it at any time, the same command goes on
version: 1
name: {scalar(name)}
about: Which INT8 and serving settings make {name} faster on {described(outline.target).title} without losing accuracy?
model: {scalar(show(outline.model.path))}
dataset: {scalar(f"../calibration/{name}.yaml")}
{f"target: {outline.target}":<40}# what executes the model
search_space: {scalar(f"../search_spaces/{name}.yaml")}  # what may vary
calibration: {{samples: {samples}, batch: {batch}}}   # observed once; every quantization algorithm is derived from them
# The axes of the Pareto front. accuracy: {judged}.
# Others: latency_p95_ms, throughput_per_s, size_mb, peak_memory_mb.
objectives: [latency_p50_ms, accuracy]
constraints:
  accuracy_drop_pp: 0.5                 # at most half a percentage point below the float model
budget: {{trials: 24, timeout: 30m}}      # whichever comes first
measure: {{calls: 1000, short_calls: 100}}  # timed calls in full (P99 needs 1000), and in the first quick look
sampler: auto
seed: 0
"""
