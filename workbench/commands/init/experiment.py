"""Writing the experiment file."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from workbench.commands.init.manifest import scalar
from workbench.commands.init.model import Outline
from workbench.commands.init.sizes import Limit, Sizes, concurrency, p99_ms
from workbench.targets import described

_CALLS = (1000, 500, 200, 100, 60)
_TIMING_S = 60.0
"""For the timed calls of a candidate and of the baseline beside it."""


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
    service: bool = True,
    about: str = "",
) -> str:
    """The experiment file.

    Args:
        name, manifest: of the experiment and its space; of the dataset manifest.
        show: gives the path to write for a file.
        judged: what accuracy is, in words.
        service: whether one can be asked for.
        about: the model, where the manifest has a name of its own.
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
        f"about: Which INT8 and serving settings make {about or manifest} faster on {titles} without losing accuracy?",
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
        *_limits(sizes.limit),
        *(_service(outline, cores, call_ms, sizes.numbers) if service else _no_service()),
        "budget: {trials: 24, timeout: 30m}      # whichever comes first",
        _measure(call_ms),
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


def _limits(limit: Limit) -> list[str]:
    if limit.worst is None:
        return [
            f"# Accuracy is in {limit.unit} here, and nobody knows what loss is usual: state it, accuracy_drop: LOSS.",
            "constraints: {}",
        ]
    key = "accuracy_drop" if limit.unit else "accuracy_drop_pp"
    loss = f"at most so many {limit.unit or 'percentage points'} worse than the float model"
    if limit.why:
        loss += f"; {limit.why}"
    lines = ["constraints:", f"  {f'{key}: {limit.worst:g}':<36}# {loss}"]
    if limit.counted is not None and limit.worst > limit.usual:
        one, need = 100 / limit.counted, math.ceil(100 / limit.usual) + 1
        lines += [
            f"  # One of {limit.counted} {limit.what} is {one:.2g} points, and chance would decide on a finer limit;",
            f"  # with {need} {limit.what} in validation and holdout each, {limit.usual:g} can be asked for.",
        ]
    return lines


def _measure(call_ms: float) -> str:
    """Fewer timed calls where a thousand would take most of the time that a candidate has."""
    calls = next((calls for calls in _CALLS if 2 * calls * call_ms <= 1000 * _TIMING_S), _CALLS[-1])
    if calls == _CALLS[0]:
        return (
            "measure: {calls: 1000, short_calls: 100}  # timed calls in full (P99 needs 1000), and in the first quick "
            "look"
        )
    return (
        f"measure: {{calls: {calls}, short_calls: {max(20, calls // 10)}}}  # timed calls in full, and in the first "
        f"quick look; 1000 of {call_ms:.3g} ms would take too long, but P99 needs them"
    )


def _service(outline: Outline, cores: int, call_ms: float, numbers: int) -> list[str]:
    start = outline.start.service
    clients, limit = concurrency(outline, cores), start.p99_ms or p99_ms(outline, cores, call_ms, numbers)
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
        lines.append(f"  p99_ms: {limit:<27g} # nobody's demand yet: write what your users accept")
        lines.append(
            f"  # ({clients} clients that each wait for a call of {call_ms:.3g} ms, {cores} processors, fit in it)"
        )
    return [*lines, *(f"  {line}" for line in start.host)]


def _no_service() -> list[str]:
    return ["# No `service:`: a model that carries a state from call to call is not served by batches of requests."]
