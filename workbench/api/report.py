"""A written report of a sweep or a bundle, with the documents that other commands wrote, as Word or HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from workbench import __version__
from workbench.api.opening import find_candidate, journal_of, read_experiment, refuse_language_model, summary_of
from workbench.bundle.golden import bundle_agreement
from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.verify import check_files
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.load.result import LoadResult, read_result
from workbench.prediction.capacity import read_capacity
from workbench.quantization.record import QuantizationRecord, record_from_json
from workbench.report import Summary
from workbench.report.written.compose import Form, written_report
from workbench.report.written.document import Language
from workbench.report.written.files import check_form, write_report
from workbench.report.written.material import Material, QuantizedLayers
from workbench.shipping.acceptance.verdict import read_verdict
from workbench.shipping.handover import service_settings
from workbench.study.compared import Comparison
from workbench.values.agreement import read_agreement
from workbench.values.documents.json_reader import loads, read_document, read_json
from workbench.values.errors import ConfigError
from workbench.values.measurement import Split
from workbench.values.results import Evaluation

_MOST_JSON = 1 << 26


def report(
    subject: Path | str,
    to: Path | str,
    *,
    language: Language = "zh",
    form: Form = "full",
    candidate: str | None = None,
    verdict: Path | None = None,
    agreement: Path | None = None,
    loads: Sequence[Path] = (),
    layers: Path | None = None,
    capacity: Path | None = None,
    command: str = "",
    workspace: Path | str | None = None,
    now: datetime | None = None,
) -> None:
    """Write a report. Documents that are not given are said to be not measured.

    Args:
        subject: an experiment file that was swept, or a folder of a bundle.
        to: .docx or .html.
        form: 'briefing' is what those who decide are told in eight minutes.
        candidate: id or its first digits, of a sweep; None for the recommended one, or for the one that came closest.
        verdict: of `workbench load --baseline`.
        agreement: of `workbench agreement --to`, instead of what the sweep or bundle holds.
        loads: results of `workbench load --to`, or folders of them.
        layers: of `workbench compare --json`.
        capacity: of `workbench plan-capacity --json`.
        command: the command line that asks for the report.
        now: when it was written; None for now.

    Raises:
        ConfigError: no such subject, candidate or document, or no such form of file.
        BundleError: the bundle is damaged.
        ToolchainError: python-docx is missing for Word, or the file cannot be written.
    """
    check_form(Path(to))
    made, path = now or datetime.now(UTC), Path(subject)
    at = made.isoformat(timespec="seconds")
    if path.is_dir():
        if candidate is not None:
            raise ConfigError("is for a sweep; a bundle holds one candidate.", key="--candidate")
        found = _of_bundle(read_bundle(path), str(subject), at)
    else:
        found = _of_sweep(read_experiment(path, workspace), str(subject), candidate, at)
    results = tuple(_loads(loads))
    material = replace(
        found,
        verdict=None if verdict is None else read_verdict(verdict),
        agreement=found.agreement if agreement is None else read_agreement(agreement),
        comparison=None if layers is None else _comparison(layers),
        loads=results,
        loads_emulated=bool(results) and found.emulated,
        capacity=None if capacity is None else read_capacity(capacity),
        command=command,
    )
    write_report(written_report(material, language, form), Path(to), created=made)


def _of_sweep(question: Experiment, source: str, candidate: str | None, at: str) -> Material:
    refuse_language_model(question, "report")
    journal = journal_of(question)
    summary = summary_of(question, journal)
    chosen, fits = _chosen(question, journal, summary, candidate)
    confirmed = summary.confirmations.get(chosen.candidate.id)
    evaluations = [e for e in (chosen, confirmed) if e is not None and e.status == "complete"]
    data, record = question.dataset, journal.record(chosen.candidate.id)
    return Material(
        name=question.name,
        about=question.about,
        task=data.task,
        source=source,
        is_bundle=False,
        created_at=at,
        workbench=__version__,
        chosen=chosen,
        confirmed=confirmed if confirmed is not None and confirmed.status == "complete" else None,
        baseline=summary.baseline,
        baseline_confirmed=summary.confirmations.get(summary.baseline_id),
        none_fits=not fits,
        named=candidate is not None,
        model=question.model,
        data={split: (data.digest(split), _scored(evaluations, split)) for split in get_args(Split)},
        settings=service_settings(chosen.candidate, evaluations) if question.service is not None else None,
        layers=_quantized(record_from_json(_object(record))) if record.exists() else None,
        summary=summary,
        agreement=next((e.agreement for e in reversed(evaluations) if e.agreement is not None), None),  # held-out first
    )


def _chosen(question: Experiment, journal: Journal, summary: Summary, candidate: str | None) -> tuple[Evaluation, bool]:
    """What the report is about, and whether it meets every constraint or was named."""
    fits = candidate is not None or summary.recommended is not None
    best = summary.recommended or summary.closest
    wanted = question.baseline.id if best is None else best.candidate_id
    if candidate is not None:
        wanted = find_candidate(candidate, journal).id
    found = summary.find(wanted)
    if found is None or found.status == "failed":
        rule = f"{wanted[:12]} was not measured by the last sweep."
        raise ConfigError(rule, file=question.path, hint="Name one with --candidate.")
    return found, fits


def _scored(evaluations: Iterable[Evaluation], split: str) -> int | None:
    return next(
        (a.samples for e in evaluations if (a := e.measurement.accuracy) is not None and a.split == split), None
    )


def _quantized(record: QuantizationRecord) -> QuantizedLayers:
    kinds = Counter(layer.op_type for layer in record.layers)
    return QuantizedLayers(by=record.provenance.engine, kinds=kinds, float_layers=record.float_layers)


def _of_bundle(bundle: Bundle, source: str, at: str) -> Material:
    check_files(bundle)
    m = bundle.manifest
    if not bundle.served_here:
        rule = "holds a language model, for which no report is written. Its README.md has its figures."
        raise ConfigError(rule, file=bundle.directory)
    chosen, confirmed = _by_split(m.evaluations)
    baseline, baseline_confirmed = _by_split(m.baseline)
    if chosen is None:
        raise ConfigError("holds no evaluation of its candidate.", file=bundle.directory)
    record = None if m.record is None else record_from_json(loads(bundle.read(m.record)))
    return Material(
        name=m.name,
        about=m.about,
        task=m.task,
        source=source,
        is_bundle=True,
        created_at=at,
        workbench=__version__,
        chosen=chosen,
        confirmed=confirmed,
        baseline=baseline,
        baseline_confirmed=baseline_confirmed,
        model=bundle.float_model,
        data={split: (digest, _scored(m.evaluations, split)) for split, digest in m.datasets.items()},
        files=m.artifact.files,
        settings=m.service,
        layers=None if record is None else _quantized(record),
        agreement=bundle_agreement(bundle),
        bundled_at=m.created_at,
    )


def _by_split(evaluations: Iterable[Evaluation]) -> tuple[Evaluation | None, Evaluation | None]:
    """(search, held-out); where the search's is missing, the other stands for it."""
    found = {e.split: e for e in evaluations}
    return found.get("validation") or found.get("holdout"), found.get("holdout")


def _loads(paths: Iterable[Path]) -> Iterator[LoadResult]:
    for path in paths:
        files = sorted(path.glob("load-*.json")) if path.is_dir() else [path]
        if not files:
            raise ConfigError("holds no load-*.json.", file=path, key="--load", hint="workbench load … --to DIR")
        for file in files:
            try:
                yield read_result(file)
            except (ValueError, AttributeError) as error:
                raise ConfigError(f"is no result of a load: {error}.", file=file, key="--load") from error


def _comparison(path: Path) -> Comparison:
    derived, key, hint = (
        ("passed", "equal", "first_jump", "first_beyond_limits"),
        "--layers",
        "workbench compare … --json",
    )
    return read_document(Comparison, path, "comparison", derived=derived, limit_bytes=_MOST_JSON, key=key, hint=hint)


def _object(path: Path) -> dict[str, Any]:
    body = read_json(path, limit_bytes=_MOST_JSON)
    if not isinstance(body, dict):
        raise ConfigError("holds no JSON object.", file=path)
    return body
