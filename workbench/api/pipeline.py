"""A pipeline from its file to the recommendation and its bundle: each stage's own sweep, then all of them together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter

import psutil

from workbench import __version__
from workbench.api.bundle import export
from workbench.api.opening import opened
from workbench.api.sweep import sweep
from workbench.bundle.pipeline import PipelineManifest, read_pipeline_bundle, write_pipeline_bundle
from workbench.bundle.signing import SecretKey, only_key
from workbench.evaluation.bench import Bench
from workbench.evaluation.pipeline_pass import requests_of, run_pipeline
from workbench.evaluation.stage_data import FloatPipeline, float_pipeline
from workbench.evaluation.store import open_store
from workbench.evaluation.sweep_folders import current_journal
from workbench.inputs.experiment import Experiment
from workbench.inputs.pipeline import Pipeline
from workbench.load import LoadPlan, run_load
from workbench.load.requests import npz_bodies
from workbench.load.service_process import running_service
from workbench.search.joint import (
    Joint,
    JointSearch,
    Option,
    keeps_limits,
    options_of,
    own_settings,
    recommended,
    shared_host,
)
from workbench.serve.pipeline import PipelineReport, verify_pipeline
from workbench.user_code import UserCode
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import DecodeError, decode, encode
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import BundleError, CandidateError, ConfigError
from workbench.values.model import TensorSpec
from workbench.values.pipeline import Item
from workbench.values.service import HostCosts
from workbench.values.setting_groups import describe
from workbench.values.system.files import write_json_atomically
from workbench.values.system.scratch import scratch_folder
from workbench.values.system.steps import minutes

FOUND = "found.json"
STAGES_SHARE, SEARCH_SHARE = 0.65, 0.85
"""Of the time, until which the stages' own sweeps and the search of the whole may take; then come held-out data and
loads."""
LOADED = 3
"""Combinations that are served and loaded for real, the best predictions first."""
GOLDEN_REQUESTS = 4
_WARMUP_S = 2.0


def sweep_pipeline(
    pipeline: Pipeline, *, timeout_s: float | None = None, fresh: bool = False, report: Callable[[str], None]
) -> list[Joint]:
    """Sweep each stage, then search them together; what was found is kept beside the stages' data.

    Args:
        fresh: start each stage's sweep over.

    Everything measured is in the store and the stages' journals, so the same call goes on where one was ended.
    """
    began, limit_s = perf_counter(), pipeline.timeout_s if timeout_s is None else timeout_s
    float_run = float_pipeline(pipeline, report)
    names = list(float_run.experiments)
    for place, name in enumerate(names):
        left_s = STAGES_SHARE * limit_s - (perf_counter() - began)
        share_s = max(left_s / (len(names) - place), 30.0)
        report(f"stage {name}: its own sweep, up to {share_s:.0f} s")
        question = float_run.experiments[name]
        before = current_journal(question.workspace, question.name)
        other = before is not None and before.identity() != question.identity  # this file was changed since
        found = sweep(
            question,
            timeout_s=share_s,
            fresh=fresh or other,
            on_message=report,
            on_trying=partial(_tried, report, name),
        )
        report(f"stage {name}: {len(found.summary.evaluations)} recipes measured in {found.took_s:.0f} s")
    with joint_search(pipeline, float_run, report) as search:
        baseline = search.joint_at(search.floats, search.first_settings(), search.loss(search.floats, "validation"))
        if not search.emulated:
            baseline, search.host = load_joint(search, baseline)
        joints = search.run(baseline, began + SEARCH_SHARE * limit_s)
        alone = search.stage_by_stage()
        settings, ids = {n: own_settings(o) for n, o in alone.items()}, {n: o.candidate.id for n, o in alone.items()}
        if not any(one.recipes == ids and one.settings == settings for one in joints[1:]):
            with contextlib.suppress(CandidateError):
                joints.append(search.joint_at(alone, settings, search.loss(alone, "validation")))
                joints[-1] = replace(joints[-1], by_stage=True)
        _keep(pipeline, joints)
        joints = _confirmed(search, joints, began + limit_s)
        every_s = search.combinations * pipeline.service.confirm_s
        took_s = perf_counter() - began
        report(
            f"{search.combinations} combinations of recipes and service settings: loading each for real would take "
            f"{minutes(every_s)}, the search took {minutes(took_s)} ({took_s / every_s:.2%})"
        )
    return joints


def _keep(pipeline: Pipeline, joints: Sequence[Joint]) -> None:
    """What was found so far, so that a kill costs the load in flight."""
    body = {"version": 1, "identity": pipeline.identity, "found": encode(joints)}
    write_json_atomically(pipeline.folder / FOUND, body)


def _tried(report: Callable[[str], None], stage: str, candidate: Candidate, why: str) -> None:
    report(f"stage {stage}: {candidate.short_id}, {describe(candidate)}")


def _confirmed(search: JointSearch, joints: Sequence[Joint], until: float) -> list[Joint]:
    """The best predictions on held-out requests and under real load; and what stages alone would have led to."""
    found = list(joints)
    for _ in range(LOADED):
        left = [one for one in found[1:] if one.held is None and keeps_limits(search.pipeline, one, found)]
        best = max(left, key=lambda one: one.predicted_per_s, default=None)
        if best is None or perf_counter() > until:
            break
        found[found.index(best)] = _confirm(search, best)
        _keep(search.pipeline, found)
    for place, one in enumerate(found):
        if one.by_stage and perf_counter() < until:
            found[place] = _confirm(search, one)
            _keep(search.pipeline, found)
    return found


def _confirm(search: JointSearch, joint: Joint) -> Joint:
    said = search.words(search.of(joint))
    try:
        joint = replace(joint, held=search.loss(search.of(joint), "holdout"))
        if not search.emulated:
            joint, _ = load_joint(search, joint)
    except (CandidateError, BundleError) as error:
        search.report(f"{said}: {error}")
        return replace(joint, note=str(error))
    if joint.measured_per_s is not None and joint.measured_p99_ms is not None:
        search.report(
            f"{said}: measured {joint.measured_per_s.value:.1f}/s, P99 {joint.measured_p99_ms.value:.0f} ms "
            f"(predicted {joint.predicted_per_s:.1f}/s, {joint.predicted_p99_ms:.0f} ms)"
        )
    return joint


def load_joint(search: JointSearch, joint: Joint) -> tuple[Joint, HostCosts]:
    """A combination served and loaded for real, and what a request costs the front end there."""
    pipeline, seconds = search.pipeline, search.pipeline.service.confirm_s
    with scratch_folder("pipeline") as folder:
        bundle = _written(search, joint, folder / "bundle", allow_emulated=True)
        with running_service(bundle, log=folder / "serve.log", own=True) as running:
            load = search.pipeline.service.load
            assert load is not None  # a pipeline's always has one
            plan = LoadPlan(
                url=running.url, load=load, duration_s=seconds, warmup_s=_WARMUP_S, timeout_s=60.0, seed=pipeline.seed
            )
            front = psutil.Process(running.pid)
            before = sum(front.cpu_times()[:2])
            bodies = npz_bodies(requests_of(pipeline.dataset, "holdout", 64))
            result = run_load(plan, bodies, api_key=running.api_key, server_pid=running.pid)
            spent_s = sum(front.cpu_times()[:2]) - before
    if result.failed or result.p99_ms is None:
        return replace(joint, note=f"{result.failed} of {result.requests} requests failed under load"), search.host
    rate = result.throughput_per_s
    answered = max(1.0, rate.value * (seconds + _WARMUP_S))
    host = search.with_request_ms(1000 * spent_s / answered)
    return replace(joint, measured_per_s=rate, measured_p99_ms=result.p99_ms), host


def export_pipeline(
    pipeline: Pipeline,
    to: Path,
    *,
    allow_emulated: bool = False,
    secret: SecretKey | None = None,
    report: Callable[[str], None],
) -> PipelineReport:
    """Write the bundle of the recommended combination, and verify it.

    Raises:
        ConfigError: no sweep, or none is recommended.
        BundleError: what was written does not answer its golden requests alike; or it is emulated, unless allowed.
    """
    chosen = recommended(pipeline, found_of(pipeline))
    if chosen is None:
        raise ConfigError("no combination keeps its limits.", file=pipeline.path, hint="See `workbench show`.")
    with joint_search(pipeline, float_pipeline(pipeline, report), report) as search:
        _written(search, chosen, to, allow_emulated=allow_emulated, secret=secret)
    trusted = None if secret is None else only_key(secret.public)
    return verify_pipeline(read_pipeline_bundle(to), trusted)


def _written(
    search: JointSearch, joint: Joint, to: Path, *, allow_emulated: bool, secret: SecretKey | None = None
) -> Path:
    pipeline, chosen = search.pipeline, search.of(joint)
    requests = requests_of(pipeline.dataset, "holdout", 64)
    golden = requests[:GOLDEN_REQUESTS]
    answers = [trace.answer for trace in run_pipeline(pipeline, search.stages(chosen), golden)]
    answer_code, takes = pipeline.answer or (None, ())
    own = [code for each in pipeline.stages for code in (each.code, each.again)]
    codes = [code for code in (*own, answer_code) if code is not None]

    def glue(code: UserCode | None) -> str:
        return "" if code is None else f"{code.file.name}:{code.function}"

    manifest = PipelineManifest(
        name=pipeline.name,
        about=pipeline.about,
        workbench=__version__,
        identity=pipeline.identity,
        emulated=search.emulated,
        stages=tuple(replace(each.wiring, glue=glue(each.code), again=glue(each.again)) for each in pipeline.stages),
        settings=joint.settings,
        request=_specs(requests),
        answer=glue(answer_code),
        answer_takes=takes,
        figures={"joint": encode(joint)},
        versions=tuple(sorted({version for code in codes for version in code.versions})),
    )
    stage = partial(_write_stage, search, chosen, allow_emulated)
    return write_pipeline_bundle(to, manifest, codes, stage, (golden, answers), secret)


def _write_stage(search: JointSearch, chosen: Mapping[str, Option], allow_emulated: bool, name: str, to: Path) -> None:
    experiment, _ = search.benches[name]
    export(experiment, to, candidate=chosen[name].candidate.id, allow_emulated=allow_emulated, register=False)


def _specs(requests: Sequence[Item]) -> tuple[TensorSpec, ...]:
    """The tensors of a request; an axis whose size differs from one to another is free."""
    found = []
    for name, first in requests[0].items():
        shapes = {request[name].shape for request in requests}
        axes = [{shape[at] for shape in shapes} for at in range(first.ndim)]
        sizes = [sizes.pop() if len(sizes) == 1 else f"{name}_{at}" for at, sizes in enumerate(axes)]
        found.append(TensorSpec(name=name, dtype=first.dtype.name, shape=("batch", *sizes)))
    return tuple(found)


@contextlib.contextmanager
def joint_search(pipeline: Pipeline, float_run: FloatPipeline, report: Callable[[str], None]) -> Iterator[JointSearch]:
    with contextlib.ExitStack() as stack:
        benches: Mapping[str, tuple[Experiment, Bench]] = {
            name: stack.enter_context(opened(experiment)) for name, experiment in float_run.experiments.items()
        }
        every = {
            name: options_of(experiment, bench.journal.evaluations(), name)
            for name, (experiment, bench) in benches.items()
        }
        emulated = any(chain.emulated for _, bench in benches.values() for chain in bench.toolchains.values())
        host = shared_host(every, pipeline.service.host, emulated=emulated)
        yield JointSearch(
            pipeline=pipeline,
            float_run=float_run,
            benches=benches,
            store=stack.enter_context(open_store(pipeline.workspace)),
            options=every,
            host=host,
            sessions=stack,
            report=report,
            opened={},
        )


def found_of(pipeline: Pipeline) -> list[Joint]:
    """What the last sweep of a pipeline found.

    Raises:
        ConfigError: there was none, or it was of another question.
    """
    path = pipeline.folder / FOUND
    if not path.is_file():
        raise ConfigError("has not been swept yet.", file=pipeline.path, hint=f"Run: workbench sweep {pipeline.path}")
    body = read_json(path)
    try:
        if not isinstance(body, dict) or body.get("identity") != pipeline.identity:
            hint = f"Run: workbench sweep {pipeline.path}"
            raise ConfigError("was changed since its sweep.", file=pipeline.path, hint=hint)
        return [decode(Joint, one) for one in body["found"]]
    except (DecodeError, KeyError) as error:
        raise ConfigError(f"cannot be read: {error}.", file=path, hint="Sweep again.") from error
