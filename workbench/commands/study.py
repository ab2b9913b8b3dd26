"""Commands about one model rather than a sweep: calibrate it as AMCT does, rank its layers, compare two forms of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from workbench.commands.console import out, print_json, say, tell
from workbench.commands.options import AsJson, Constants, ExperimentFile, Workspace, one_of
from workbench.values.errors import ConfigError
from workbench.values.exit_codes import FAILED
from workbench.values.system.files import write_text_atomically

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.study.amct_command import Calibrated
    from workbench.study.compared import Limits


def calibrate(
    model: Annotated[Path, typer.Argument(help="float ONNX file")],
    to: Annotated[Path, typer.Option(help="folder to write into")],
    data: Annotated[
        Path | None, typer.Option(help="NPZ with one array per batch (arr_0 …, or INPUT_0 …), or a dataset manifest")
    ] = None,
    cfg: Annotated[
        Path | None, typer.Option(help="AMCT simplified configuration (.cfg) or quantization JSON; default: AMCT's own")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="lower this record file (AMCT's or ours) instead of calibrating")
    ] = None,
    constant: Constants = None,
) -> None:
    """Quantize one model as AMCT does: record.txt, config.json, the deploy model for ATC, a QDQ model."""
    from workbench.study.amct_command import calibrate as run

    done = run(model, to, data=data, cfg=cfg, record=record, constants=constant or (), on_message=say)
    out.print(_layers_table(done))
    if done.ignored:
        say(f"{done.ignored} batches beyond batch_num were not used, as AMCT ignores them")
    if done.agreement is not None:
        seen = done.agreement
        say(
            f"on the first batch the deploy model, run on integers (simulated), has cosine {seen.cosine:.6f} "
            f"with the float model and {seen.qdq_cosine:.6f} with the QDQ model in ONNX Runtime"
        )
        if seen.other_sizes:
            say(
                f"output {', '.join(seen.other_sizes)} has another length than the float model's, which depends on the "
                "data: the common part is compared"
            )
    for file in done.files:
        say(f"wrote {file}")


def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="FILE or ENGINE:FILE; with --experiment also a candidate: its id, its JSON file, or baseline; or "
            "float, the experiment's own model"
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(
            help="the same; ENGINE is a target's name, deploy for exact integers, or om for compiled files on their "
            "device: an OM, a folder of them, a bundle, a dump, or a candidate"
        ),
    ],
    data: Annotated[Path | None, typer.Option(help="NPZ or dataset manifest; default: random values")] = None,
    experiment: Annotated[Path | None, typer.Option(help="experiment whose candidates and data are meant")] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="samples to run, where the data has more; default: 64, of an OM one run")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="samples a run")] = 8,
    cosine: Annotated[
        float | None, typer.Option(help="limit: cosine must be above; default: by precision, 0.999 or 0.99 for INT8")
    ] = None,
    max_abs: Annotated[
        float | None, typer.Option(help="limit: largest |difference| must be below; default for float: 0.001")
    ] = None,
    mae: Annotated[
        float | None, typer.Option(help="limit: mean |difference| must be below; default for float: 0.0001")
    ] = None,
    error: Annotated[
        float | None, typer.Option(help="limit: |a - b| / |a| must be below; default for INT8: 0.15")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="compare and show what every operator computes, not only the layers")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="also draw the errors along the graph into this page")] = None,
    to: Annotated[
        Path | None, typer.Option(help="of an OM: folder for dump and NPY files; default: compare-om")
    ] = None,
    constant: Constants = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models layer by layer: where do their numbers part? Exit code 1 when an output is over a limit."""
    from workbench.api.study import compare as run
    from workbench.report.layers import comparison_html, comparison_text

    limits = _limits(differing=1.0, cosine=cosine, max_abs=max_abs, mae=mae, error=error)
    found = run(
        a,
        b,
        data=data,
        experiment=experiment,
        samples=samples,
        batch=batch,
        limits=limits,
        every=every,
        constants=constant or (),
        to=to,
    )
    if html is not None:
        write_text_atomically(html, comparison_html(found))
    if as_json:
        print_json(found.to_json())
    else:
        out.print(comparison_text(found, every=every), highlight=False)
        if html is not None:
            say(f"wrote {html}")
    if not found.passed:
        raise SystemExit(FAILED)


def sensitivity(
    experiment: ExperimentFile,
    metric: Annotated[str, typer.Option(help="sqnr, kl, cosine or first_order: what ranks the units")] = "sqnr",
    unit: Annotated[str, typer.Option(help="layer or group: what stays in float")] = "group",
    candidate: Annotated[
        str | None, typer.Option(help="static INT8 candidate whose recipe is meant; default: plain min-max INT8")
    ] = None,
    measure: Annotated[bool, typer.Option("--measure/--quick", help="evaluate a few, or only rank")] = True,
    html: Annotated[Path | None, typer.Option(help="page to draw; default: in the workspace")] = None,
    workspace: Annotated[Path | None, typer.Option(help="folder of .workbench/; default: beside experiments/")] = None,
    as_json: AsJson = False,
) -> None:
    """Which layers to keep in float, and what it costs: rank them, time them, measure the answer."""
    from workbench.api.opening import named_candidate, opened
    from workbench.evaluation.build import ranking_of
    from workbench.report.layers import sensitivity_html, study_text
    from workbench.study.layers import COUNTS, plain_recipe, study_layers, write_recipe
    from workbench.targets.language import language_target
    from workbench.values.candidate import FloatUnit, SensitivityMetric

    chosen_metric: SensitivityMetric = one_of(metric, SensitivityMetric, "--metric")
    chosen_unit: FloatUnit = one_of(unit, FloatUnit, "--unit")
    with opened(experiment, workspace, scratch=True) as (question, bench):
        if question.model.is_language_model:
            if candidate is not None or (metric, unit, html) != ("sqnr", "group", None):
                raise ConfigError(
                    "groups of a language model are ranked alone, by one figure, and no page is drawn.",
                    key="--candidate, --metric, --unit, --html",
                    hint="Leave them out.",
                )
            ranking = ranking_of(question, bench, language_target(bench.target(question.baseline)))
            total = sum(ranking.values()) or 1.0
            if as_json:
                print_json([{"name": name, "error": error, "share": error / total} for name, error in ranking.items()])
            else:
                say("\n".join(_ranking_lines(ranking, total)))
            return
        recipe = plain_recipe()
        if candidate is not None:
            recipe = named_candidate(candidate, question).quantization
            if recipe.scheme != "static":
                raise ConfigError(
                    f"{candidate} is {recipe.scheme!r}; only static INT8 keeps layers in float.", key="--candidate"
                )
        counts = COUNTS if measure else ()
        study = study_layers(
            question, bench, recipe, metric=chosen_metric, unit=chosen_unit, counts=counts, report=tell
        )
        folder = question.workspace / ".workbench" / "sensitivity" / question.name
        page = html or folder / "sensitivity.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        written = write_recipe(study, question, bench, folder)
        write_text_atomically(page, sensitivity_html(study, written))
    if as_json:
        print_json(study.to_json())
        return
    out.print(study_text(study), highlight=False)
    say("\n".join([*written, f"wrote {page}"]))


_MOST_ROWS = 20


def _ranking_lines(ranking: Mapping[str, float], total: float) -> list[str]:
    """The worst groups of linears of a language model as a table, then each kind's part."""
    width = max(map(len, ranking))
    lines = [f"{'':>4}  {'group':<{width}}  {'error':>9}  {'share':>6}  {'so far':>6}"]
    so_far, kinds = 0.0, dict[str, float]()
    for place, (name, error) in enumerate(ranking.items(), 1):
        kind = name.rpartition(".")[2]
        kinds[kind] = kinds.get(kind, 0.0) + error / total
        if place <= _MOST_ROWS:
            so_far += error / total
            lines.append(f"{place:>4}  {name:<{width}}  {error:9.2e}  {error / total:6.1%}  {so_far:6.1%}")
    if len(ranking) > _MOST_ROWS:
        lines.append(f"      and {len(ranking) - _MOST_ROWS} more, {1 - so_far:.1%} together")
    told = ", ".join(f"{kind} {share:.1%}" for kind, share in sorted(kinds.items(), key=lambda item: -item[1]))
    return [
        *lines,
        f"by kind: {told}",
        "error: how far a block's output moves when that group alone is static W8A8, squared, as a share of the",
        "output, mean over tokens; measured on the calibration texts. `recipe.float_down: N` leaves the first N of",
        "down float, `recipe.float_groups: N` the first N of the others.",
    ]


def _limits(*, differing: float, **given: float | None) -> Limits | None:
    """Those that were given, and no others; None where none was."""
    from workbench.study.compared import Limits

    own = {name: value for name, value in given.items() if value is not None}
    nothing: dict[str, Any] = {"cosine": -2.0, "max_abs": None, "mae": None, "differing": differing}
    return Limits(**{**nothing, **own}) if own else None


def _layers_table(done: Calibrated) -> Table:
    source = f"calibrated on {done.batches} batches" if done.batches else "taken from the record"
    title = f"{len(done.record.layers)} of {len(done.layers)} layers INT8, {source}"
    table = Table("layer", "operator", "scale", "offset", "weight scales", title=title)
    quantized = {layer.layer: layer for layer in done.record.layers}
    for layer in done.layers:
        found = quantized.get(layer.name)
        row = ["float", "", ""]
        if found is not None:
            row = [f"{found.activation.scale:.6g}", str(found.activation.zero_point), ""]
            if found.weight is not None:
                low, high = min(found.weight.scales), max(found.weight.scales)
                row[2] = f"{low:.4g}" if low == high else f"{low:.4g} … {high:.4g} ({len(found.weight.scales)})"
            if found.second is not None:
                row[2] = f"second activation {found.second.scale:.6g}"
        table.add_row(Text(layer.name), layer.op_type, *row)
    return table


def profile(
    experiment: ExperimentFile,
    candidate: Annotated[str, typer.Option(help="id, JSON file, or baseline")] = "baseline",
    calls: Annotated[int, typer.Option(min=1, help="calls to profile")] = 100,
    overflow: Annotated[
        bool, typer.Option("--overflow", help="check for overflows on the device instead, one call for each feed")
    ] = False,
    read: Annotated[
        Path | None,
        typer.Option(help="read the profile that the vendor's profiler left in this folder instead of running"),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="folder for the vendor's own files; default: the sweep's")] = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Where the time of a candidate goes on its device, and when it idles and why; or what overflows."""
    from workbench.api.opening import named_candidate, opened
    from workbench.evaluation.build import artifact_of
    from workbench.evaluation.carried import timed_feeds
    from workbench.evaluation.replay import overflows, profile_of, where_time_goes
    from workbench.report.profile import profile_lines

    if overflow and (read or as_json):
        raise ConfigError("the overflow check reads no profile.", key="--overflow", hint="Run it alone.")
    with opened(experiment, workspace) as (question, bench):
        chosen = named_candidate(candidate, question)
        artifact, directory = artifact_of(question, chosen, bench)
        data = question.dataset.with_bins(chosen.sequence_bins)
        batch = chosen.serving.batch
        feeds = timed_feeds(data, question.model, "validation", count=32, batch=batch, seed=question.seed)
        folder = to or question.workspace / ".workbench" / "profiles" / chosen.short_id
        if overflow:
            if bench.toolchain(chosen).emulated:
                tell(_MODELLED, style="bold red")
            words = overflows(directory, artifact, chosen, feeds, folder / "overflow-check").text
            say(words)
            say(f"files in {folder}")
            return
        if read is not None:
            found = profile_of(read, directory, artifact, chosen)
        else:
            found = where_time_goes(directory, artifact, chosen, feeds, folder, calls=calls)
    if found.modelled:
        tell(_MODELLED, style="bold red")
    if as_json:
        print_json({**found.to_json(), "candidate": chosen.id})
        return
    say("\n".join(profile_lines(found)))
    say(f"files in {folder if read is None else read}")


def repair(
    experiment: ExperimentFile,
    candidate: Annotated[str, typer.Option(help="id, JSON file, or baseline")] = "baseline",
    samples: Annotated[
        int | None, typer.Option(min=1, help="samples to compare; default: one call. The overflow check takes all")
    ] = None,
    cosine: Annotated[float | None, typer.Option(help="limit: cosine must be above; default: by precision")] = None,
    error: Annotated[
        float | None, typer.Option(help="limit: |a - b| / |a| must be below; default: 0.02, or 0.15 for INT8")
    ] = None,
    most: Annotated[int, typer.Option(min=2, help="candidates to compile at most")] = 40,
    to: Annotated[Path | None, typer.Option(help="folder to write into; default: in the workspace")] = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Find the cheapest change that keeps a candidate from overflowing or being off on its device; writes a preset."""
    from workbench.api.opening import named_candidate, opened
    from workbench.study.repair import repair as run
    from workbench.study.repair import repair_lines, write_repair
    from workbench.values.documents.canonical import encode

    limits = _limits(differing=0.0, cosine=cosine, error=error)
    with opened(experiment, workspace, scratch=True) as (question, bench):
        chosen = named_candidate(candidate, question)
        if bench.toolchain(chosen).emulated:
            tell(_MODELLED, style="bold red")
        count = samples or chosen.serving.batch
        found = run(question, bench, chosen, samples=count, limits=limits, most=most, report=tell)
        folder = to or question.workspace / ".workbench" / "repairs" / chosen.short_id
        written = write_repair(found, chosen, question, folder) if found.steps else ()
    if as_json:
        print_json({"version": 1, "asked": chosen.id, **encode(found)})
        return
    say("\n".join((*repair_lines(found), *written)))


def tune(
    experiment: ExperimentFile,
    candidate: Annotated[str, typer.Option(help="id, JSON file, or baseline")] = "baseline",
    bank: Annotated[
        Path | None,
        typer.Option(help="a bank that was filled elsewhere: take it, and tune nothing"),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="folder to write into; default: in the workspace")] = None,
    workspace: Workspace = None,
) -> None:
    """Tune a candidate's operators on its device with the vendor's tool; the bank is a setting."""
    from workbench.api.opening import named_candidate, opened
    from workbench.evaluation.build import lowered_file
    from workbench.targets import described
    from workbench.values.system.files import write_json_atomically

    with opened(experiment, workspace, scratch=True) as (question, bench):
        chosen = named_candidate(candidate, question)
        make = described(chosen.target).tune
        if make is None:
            raise ConfigError(f"{chosen.target} has no tool that tunes operators.", key="--candidate")
        if bench.toolchain(chosen).emulated:
            tell(_MODELLED, style="bold red")
        folder = to or question.workspace / ".workbench" / "tuned" / chosen.short_id
        place = bank or folder / "bank"
        lowered = None if bank is not None else lowered_file(question, chosen, bench)
        found = make(lowered, chosen, place, tell)
        file = folder / "candidate.json"
        folder.mkdir(parents=True, exist_ok=True)
        write_json_atomically(file, found.to_json())
    changed = {n: v for n, v in found.parameters().items() if chosen.parameters().get(n) != v}
    say(f"{'took' if bank else 'filled'} {place}\nwrote {file}")
    say("\n".join(f"its key has: {name} {value}" for name, value in changed.items()))
    say(f"measure it:   workbench evaluate {experiment} --candidate {file}")
    say(f'search on:    {", ".join(changed)}: {{choices: ["off", {place.resolve()}]}} in the search space')


_MODELLED = "EMULATED: modelled, not measured on a real device."
