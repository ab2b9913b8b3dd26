"""A pipeline's combinations in MLflow: one flat run for each that was measured end to end, in an experiment of the
pipeline's name. Runs are found again by what they combine, so a sweep that goes on writes each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow.entities import Metric, Param, RunTag

from workbench.search.joint import Joint
from workbench.tracking.run import USER, flag, whose
from workbench.tracking.server import place_of
from workbench.tracking.store import client_of, find_runs, mlflow_errors, open_experiment, prepare
from workbench.values.documents.canonical import digest

_MOST_VALUE = 500


def log_pipeline(
    workspace: Path, name: str, about: str, joints: Sequence[Joint], chosen: Joint | None, recipes: Mapping[str, str]
) -> str:
    """Write what a pipeline's sweep found; returns where.

    Args:
        joints: the float pipeline first.
        recipes: candidate id → in words.

    Raises:
        ToolchainError: the store or the server that the environment names cannot be used; nothing is lost by it.
        ConfigError: the experiment of that name is somebody else's.
    """
    place = place_of(workspace)
    if not place.server:
        prepare(place.store)
    with mlflow_errors(place):
        client = client_of(place)
        experiment = open_experiment(client, name, None if place.server else place.artifacts, about)
        known = {run.data.tags.get("combination"): run.info.run_id for run in find_runs(client, experiment, "")}
        for joint in joints:
            identity = digest([joint.recipes, joint.settings])
            tags = _tags(joint, joints[0], chosen) | {"combination": identity}
            run_id = known.get(identity)
            if run_id is None:
                run = client.create_run(
                    experiment, tags=tags | {USER: whose()}, run_name=_name(joint, joints[0], chosen)
                )
                run_id = run.info.run_id
                client.log_batch(run_id, params=_params(joint, recipes))
            else:
                client.update_run(run_id, name=_name(joint, joints[0], chosen))
            numbers = [Metric(key, value, 0, 0) for key, value in _metrics(joint).items()]
            client.log_batch(run_id, metrics=numbers, tags=[RunTag(key, value) for key, value in tags.items()])
            client.set_terminated(run_id)
    return place.name


def _name(joint: Joint, baseline: Joint, chosen: Joint | None) -> str:
    kind = "float" if joint is baseline else "stage by stage" if joint.by_stage else "combination"
    words = kind if joint is baseline else f"{kind} {digest([joint.recipes, joint.settings])[:8]}"
    return f"{'★ ' if joint is chosen else ''}{'[emulated] ' if joint.emulated else ''}{words}"


def _tags(joint: Joint, baseline: Joint, chosen: Joint | None) -> dict[str, str]:
    quick = "modelled" if joint.emulated else "predicted"
    return {
        "kind": "pipeline",
        "baseline": flag(joint is baseline),
        "recommended": flag(joint is chosen),
        "by_stage": flag(joint.by_stage),
        "emulated": flag(joint.emulated),
        "evidence.requests_per_s": quick if joint.measured_per_s is None else "measured under load",
        "evidence.loss": "measured" if joint.held is None else "held-out",
        "note": joint.note,
    }


def _params(joint: Joint, recipes: Mapping[str, str]) -> list[Param]:
    found = {name: f"{identity[:12]} {recipes.get(identity, '')}" for name, identity in joint.recipes.items()}
    found |= {f"{name}.service": str(settings) for name, settings in joint.settings.items()}
    return [Param(key, value[:_MOST_VALUE]) for key, value in sorted(found.items())]


def _metrics(joint: Joint) -> dict[str, float]:
    """The stronger evidence under the plain name, what was predicted beside it."""
    rate, p99 = joint.measured_per_s, joint.measured_p99_ms
    found = {"predicted_requests_per_s": joint.predicted_per_s, "predicted_p99_ms": joint.predicted_p99_ms}
    found["requests_per_s"] = joint.predicted_per_s if rate is None else rate.value
    found["p99_ms"] = joint.predicted_p99_ms if p99 is None else p99.value
    quality = joint.held or joint.searched
    if quality is not None:
        found |= {f"answers_{name}": value for name, value in quality.values.items()}
        if quality.loss is not None:
            found |= {"loss": quality.loss.value, "loss_low": quality.loss.low, "loss_high": quality.loss.high}
    return found
