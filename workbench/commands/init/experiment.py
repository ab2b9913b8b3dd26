"""Writing the experiment file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbench.commands.init.model import Outline
from workbench.commands.init.scalar import scalar
from workbench.commands.init.sizes import USUAL_LIMIT_PP, Sizes, concurrency, p99_ms
from workbench.targets import described


def experiment_text(
    name: str,
    manifest: str,
    show: Callable[[Path], str],
    outline: Outline,
    sizes: Sizes,
    *,
    cores: int,
    call_ms: float,
    judged: str,
    unit: str = "",
    service: bool = True,
) -> str:
    """The experiment file.

    Args:
        name, manifest: of the experiment and its space, and of the dataset manifest.
        show: gives the path to write for a file.
        judged: what accuracy is, in words.
        unit: of the primary metric; empty for a share of 0..1, whose losses are percentage points.
        service: whether one can be asked for.
    """
    titles = " or ".join(described(target).title for target in outline.targets)
    targets = ", ".join(outline.targets)
    host = described(outline.target).on_host
    target = targets if len(outline.targets) == 1 else f"[{targets}]"
    first = "latency_p50_ms" if host or not service else "service_throughput_per_s"
    lines = [
        "# One experiment file is one question; the same file and seed ask it again. Paths are relative to this file.",
        f"#   workbench plan experiments/{name}.yaml      says what a sweep would cost",
        f"#   workbench sweep experiments/{name}.yaml     searches; stop it at any time, the same command goes on",
        *_rehearsal(outline),
        "version: 1",
        f"name: {scalar(name)}",
        f"about: Which INT8 and serving settings make {name} faster on {titles} without losing accuracy?",
        f"model: {scalar(show(outline.source.path))}",
        f"dataset: {scalar(f'../calibration/{manifest}.yaml')}",
        f"{f'target: {target}':<40}# what executes the model",
        f"search_space: {scalar(f'../search_spaces/{name}.yaml')}  # what may vary",
        f"calibration: {{samples: {sizes.calibration}, batch: {sizes.calibration_batch}}}   # observed once; every "
        "quantization algorithm is derived from them",
        *_scored(sizes, host),
        f"# The axes of the Pareto front. accuracy: {judged}.",
        "# Others: latency_p50_ms, latency_p95_ms, throughput_per_s, size_mb, peak_memory_mb"
        + (", service_throughput_per_s." if service else "."),
        f"objectives: [{first}, accuracy]",
        *_limits(sizes, unit),
        *(_service(outline, cores, call_ms) if service else _no_service()),
        "budget: {trials: 24, timeout: 30m}      # whichever comes first",
        "measure: {calls: 1000, short_calls: 100}  # timed calls in full (P99 needs 1000), and in the first quick look",
        "sampler: auto",
        "seed: 0",
    ]
    return "\n".join(lines) + "\n"


def _rehearsal(outline: Outline) -> list[str]:
    command = outline.start.rehearsal
    if not command:
        return []
    return [f"# Without the device: {command} first, and every time is modelled, not measured; results say so."]


def _scored(sizes: Sizes, host: bool) -> list[str]:
    if sizes.scored is None:
        return []
    validation, holdout = sizes.scored
    why = "more would cost time and hardly narrow an interval"
    if not host:
        why = "an emulated device computes on the host, where a pass takes long; on a device take both lines out"
    return [
        f"# Of {sizes.validation} and {sizes.holdout} samples so many score a candidate, and confirm the front: {why}.",
        f"validation: {{samples: {validation}}}",
        f"holdout: {{samples: {holdout}}}",
    ]


def _limits(sizes: Sizes, unit: str) -> list[str]:
    if unit:
        return [
            f"# Accuracy is in {unit} here, of which no usual loss is known: state yours, as accuracy: WORST VALUE.",
            "constraints: {}",
        ]
    fewest = min(sizes.scored or (sizes.validation, sizes.holdout))
    one = 100 / fewest
    lines = [
        "constraints:",
        f"  accuracy_drop_pp: {sizes.limit_pp:<18g}# at most so many percentage points below the float model",
    ]
    if sizes.limit_pp > USUAL_LIMIT_PP:
        need = round(100 / USUAL_LIMIT_PP) + 1
        lines.append(
            f"  # One of {fewest} samples is {one:.2g} points, so that a finer limit could not be told from chance:"
        )
        lines.append(f"  # with {need} samples in validation and holdout each, {USUAL_LIMIT_PP:g} can be asked for.")
    return lines


def _service(outline: Outline, cores: int, call_ms: float) -> list[str]:
    start = outline.start.service
    clients, limit = concurrency(outline, cores), start.p99_ms or p99_ms(outline, cores, call_ms)
    lines = [
        "# How requests come: each candidate gets the batch, timeout and workers of its space that serve most of them",
        "# within the limit. Without this key no service is looked for.",
        "service:",
        f"  concurrency: {clients:<22} # clients that each wait for their answer; or rate: 200 (a second)",
    ]
    if limit is None:
        lines.append(
            "  # p99_ms: 120                        # what your users accept; leave it out to see what there is"
        )
    else:
        lines.append(f"  p99_ms: {limit:<27g} # what your users accept: so chosen that the float model keeps it here")
        lines.append(f"  # (one call takes {call_ms:.3g} ms on one thread of {cores}); lower it to what you need")
    return [*lines, *(f"  {line}" for line in start.host)]


def _no_service() -> list[str]:
    return ["# No `service:`: a model that carries a state from call to call is not served by batches of requests."]
