"""What a run says: tags, numbers and names. Functions of an evaluation or a summary alone; MLflow is not needed."""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections.abc import Mapping

from workbench.evaluation.journal import Journal
from workbench.report import Summary
from workbench.report.factors import Factors
from workbench.report.recommendation import headline
from workbench.report.rests_on import confirmation_sentences
from workbench.report.text import damage_words, verdict_sentences
from workbench.report.words import scored, title
from workbench.values.documents.canonical import canonical_json, file_digest
from workbench.values.evidence import LEVELS, MEASURED, SHORT, Evidence, sources_of
from workbench.values.results import Evaluation
from workbench.values.reuse import KINDS

NOTE = "mlflow.note.content"
"""MLflow's tag for the description of a run."""
_MARKS = re.compile(rf"^[★◆]? ?(?:\[(?:{'|'.join(LEVELS)})\] )?")
USER = "mlflow.user"
"""MLflow's tag for who made it: on a server several people do."""


def whose() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def sweep_id_of(journal: Journal) -> str:
    """Number of the sweep and eight digits of its own identity, so that a deleted journal's number is not met again,
    nor that of another workspace on the same server."""
    return f"{journal.root.name}-{file_digest(journal.root / 'sweep.json')[:8]}"


def candidate_tags(evaluation: Evaluation, sweep_id: str, feasible: bool) -> dict[str, str]:
    tags = {
        "kind": "candidate",
        "sweep": sweep_id,
        "candidate": evaluation.candidate.id,
        "status": evaluation.status,
        "stage_reached": evaluation.stage_reached,
        "feasible": flag(feasible),
        "emulated": flag(evaluation.toolchain.emulated),
        "cached": flag(any(s.cached for s in evaluation.stages)),
        "shared_with": ", ".join(f"{kind} of {source[:SHORT]}" for kind, source in sources_of(evaluation).items()),
        "toolchain": evaluation.toolchain.fingerprint[:12],
        "host": "" if evaluation.place is None else evaluation.place.host,
        "card": "" if evaluation.place is None else evaluation.place.card,
        "pareto": "false",
        "recommended": "false",
    }
    service = evaluation.measurement.service
    if service is not None and service.best is not None:
        found = service.best.settings
        tags["service.max_batch_size"] = str(found.max_batch_size)
        tags["service.batch_timeout_ms"] = f"{found.batch_timeout_ms:g}"
        tags["service.workers"] = str(found.workers)
        if found.sequence_bins:
            tags["service.sequence_bins"] = " ".join(map(str, found.sequence_bins))
        tags["service.load"] = str(service.best.load)
    said = []
    if evaluation.toolchain.emulated:
        said.append("Emulated: no number of this run was measured on a real device.")
    for kind, source in sources_of(evaluation).items():
        said.append(f"Shared: its {KINDS[kind]} measured on {source[:SHORT]}, whose files do the same work.")
    if evaluation.stop is not None:
        said.append(f"Stopped at {evaluation.stop.stage}: {evaluation.stop.reason}.")
    if evaluation.failure is not None:
        failure = evaluation.failure
        said += [f"{failure.kind} at {failure.stage}: {failure.message}", f"Again: `{failure.reproduce}`"]
    if said:
        tags[NOTE] = "\n\n".join(said)
    return tags


def file_metrics(evaluation: Evaluation) -> dict[str, float]:
    """Compiled now, and taken from the store; nothing where a target does not compile a file for each shape."""
    found = {"compiled_files": evaluation.compiled, "shared_files": evaluation.shared}
    return {name: float(count) for name, count in found.items()} if any(found.values()) else {}


def sweep_metrics(summary: Summary) -> dict[str, float]:
    found: dict[str, float] = {
        "candidates": len(summary.evaluations),
        "front_members": len(summary.front),
        "stopped": sum(summary.stops.values()),
        "failed": sum(summary.failures.values()),
    }
    files = [file_metrics(evaluation) for evaluation in summary.evaluations]
    found |= {name: sum(one.get(name, 0.0) for one in files) for one in files[:1] for name in one}
    chosen = summary.chosen
    if chosen is not None:
        speedup, drop = summary.speedup(chosen), summary.drop(chosen)
        found |= {"recommended_speedup": speedup.value} if speedup is not None else {}
        found |= {f"recommended_{scored([chosen]).loss_metric}": drop.value} if drop is not None else {}
    return found


def factor_metrics(factors: Factors) -> dict[str, float]:
    """'speedup_by_lengths' and so on, of the recommended run; groups that were not measured apart are one."""
    return {f"{factors.metric}_by_{'_'.join(f.groups)}": f.gain.value for f in factors.factors}


def note(summary: Summary) -> str:
    """The verdict as the run's description (Markdown, in which the UI draws no tables)."""
    recommended = summary.recommended
    parts = [f"**Damaged: {damage_words(summary)}**"] if summary.damage else []
    if recommended is None:
        return "\n\n".join([*parts, f"**{headline(summary)}** See report.txt among the artifacts."])
    parts += ["**Emulated: no number was measured on a real device.**"] if summary.emulated else []
    parts += [
        f"**{headline(summary)}**",
        *verdict_sentences(summary),
        *confirmation_sentences(summary),
        *recommended.warnings,
        "Open `pareto.html` among the artifacts for the whole picture.",
    ]
    return "\n\n".join(parts)


def run_name(evaluation: Evaluation) -> str:
    """Names are what every list and plot of the UI shows, so an emulated run says there that it is one."""
    emulated = "[emulated] " if evaluation.toolchain.emulated else ""
    return f"{emulated}{evaluation.candidate.short_id[:6]} {title(evaluation.candidate, '')}"


def sweep_name(summary: Summary) -> str:
    return f"{'[emulated] ' if summary.emulated else ''}sweep {summary.experiment_name}"


def rounded(value: float) -> float:
    """Six digits: the UI prints every digit it gets, and evaluation.json keeps them all."""
    return float(f"{value:.6g}")


def marked_name(name: str, on_front: bool, is_chosen: bool, level: Evidence | None) -> str:
    """A star for the recommended run, a diamond for the rest of the front, and evidence that is less than a
    measurement: names are what the list shows first, and its column of evidence is out of sight on narrow screens."""
    mark = "★ " if is_chosen else "◆ " if on_front else ""
    plain = _MARKS.sub("", name)
    weak = level is not None and level not in MEASURED and not plain.startswith("[emulated]")
    return f"{mark}[{level}] {plain}" if weak else mark + plain


def shown(value: object) -> str:
    """A setting as a parameter; MLflow has no empty ones."""
    return "none" if value in (None, "") else str(value)


def flag(value: bool) -> str:
    return "true" if value else "false"


def pretty(value: Mapping[str, object]) -> str:
    return json.dumps(json.loads(canonical_json(value)), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
