"""The commands of a search over a pipeline's file, and of a pipeline's bundle: what `sweep`, `plan`, `show`, `export`
and `verify` do where they are given one."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from workbench.api.pipeline import export_pipeline, found_of, sweep_pipeline
from workbench.bundle.pipeline import read_pipeline_bundle
from workbench.bundle.signing import SecretKey, TrustedKeys
from workbench.commands.console import note, out, print_json, say, tell
from workbench.evaluation.stage_data import float_pipeline
from workbench.inputs.experiment import read_experiment
from workbench.inputs.pipeline import Pipeline, read_pipeline
from workbench.report.pipeline import pipeline_lines
from workbench.report.table import WIDTH
from workbench.search.joint import recommended
from workbench.serve.pipeline import verify_pipeline
from workbench.tracking.pipeline import log_pipeline
from workbench.values.documents.canonical import encode
from workbench.values.errors import ToolchainError
from workbench.values.exit_codes import INTERRUPTED
from workbench.values.setting_groups import describe
from workbench.values.system.steps import minutes


def sweep(file: Path, workspace: Path | None, timeout_s: float | None, *, fresh: bool) -> None:
    pipeline = read_pipeline(file, workspace)
    try:
        sweep_pipeline(pipeline, timeout_s=timeout_s, fresh=fresh, report=tell)
    except KeyboardInterrupt:
        say(f"\nStopped; everything measured is kept. Go on with: workbench sweep {file}")
        raise SystemExit(INTERRUPTED) from None
    show(file, workspace)
    found = found_of(pipeline)
    try:
        where = log_pipeline(
            pipeline.workspace, pipeline.name, pipeline.about, found, recommended(pipeline, found), _recipes(pipeline)
        )
        say(f"\nIn MLflow ({where}): experiment {pipeline.name}; each stage's: {pipeline.name}.STAGE")
    except ToolchainError as error:
        tell(f"not in MLflow: {error}", style="yellow")
    say(f"Export it: workbench export {file} --to bundle")


def plan(file: Path, workspace: Path | None) -> None:
    pipeline = read_pipeline(file, workspace)
    found = float_pipeline(pipeline, tell)
    traces = found.traces["validation"]
    say(f"{pipeline.name}: {len(pipeline.stages)} stages, {len(traces)} requests of validation")
    for stage in pipeline.stages:
        question = found.experiments[stage.name]
        counts = found.items_a_request(stage.name)
        glue_ms = median(trace.glue_ms.get(stage.name, 0.0) for trace in traces)
        source = f"glue {stage.wiring.glue}, {glue_ms:.1f} ms" if stage.wiring.glue else "tensors as they are"
        items = f"{sum(counts) / len(counts):.1f} items a request, at most {max(counts)}"
        targets = " and ".join(question.targets)
        takes = " and ".join(stage.wiring.takes)
        say(f"  {stage.name}: from {takes} ({source}); {items}; {targets}, {stage.trials} recipes")
    say(f"limits: {_limits(pipeline)}; {pipeline.concurrency} clients")
    say(f"time: {minutes(pipeline.timeout_s)} in all; each stage's own plan: workbench plan {pipeline.folder}/STAGE/…")


def show(file: Path, workspace: Path | None, *, as_json: bool = False) -> None:
    pipeline = read_pipeline(file, workspace)
    found = found_of(pipeline)
    chosen = recommended(pipeline, found)
    if as_json:
        print_json({"pipeline": pipeline.name, "recommended": encode(chosen), "found": encode(found)})
        return
    width = out.width if out.is_terminal else WIDTH
    names, limits = [each.name for each in pipeline.stages], _limits(pipeline)
    asked = chosen, _recipes(pipeline), limits, pipeline.gate
    for line in pipeline_lines(pipeline.name, names, found, *asked, width):
        out.print(line, soft_wrap=not out.is_terminal, markup=False, highlight=False)


def _limits(pipeline: Pipeline) -> str:
    metric = pipeline.dataset.metric
    unit = "pp" if metric is None else metric.unit_of(metric.name) or "pp"
    p99 = "" if pipeline.service.p99_ms is None else f", P99 at most {pipeline.service.p99_ms:g} ms"
    return f"loss at most {pipeline.gate.limit:g} {unit}{p99}"


def _recipes(pipeline: Pipeline) -> dict[str, str]:
    """Candidate id → its settings in words, of every stage's journal."""
    from workbench.api.opening import journal_of

    found = {}
    for stage in pipeline.stages:
        question = read_experiment(pipeline.folder / stage.name / "experiment.yaml", pipeline.workspace)
        for evaluation in journal_of(question).evaluations().values():
            found[evaluation.candidate.id] = describe(evaluation.candidate)
    return found


def export(file: Path, to: Path, workspace: Path | None, *, allow_emulated: bool, secret: SecretKey | None) -> None:
    report = export_pipeline(
        read_pipeline(file, workspace), to, allow_emulated=allow_emulated, secret=secret, report=tell
    )
    say(f"{to}: {report.summary}")
    say(f"Serve it: workbench serve {to}")


def verify(bundle: Path, trusted: TrustedKeys | None, *, replay: bool) -> None:
    report = verify_pipeline(read_pipeline_bundle(bundle), trusted, replay=replay)
    for warning in report.warnings:
        note("warning", warning)
    say(f"{bundle}: {report.summary}")
