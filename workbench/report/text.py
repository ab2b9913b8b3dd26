"""A summary as text: three lines per candidate, at most 112 columns, the same words on a terminal and in a file."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

from workbench.report.factors import taken_apart
from workbench.report.recommendation import gate_sentence, headline, settling_sentence
from workbench.report.rests_on import (
    confirmation_sentences,
    error_lines,
    modelled_errors,
    recipe_sentences,
    reuse_sentences,
    stopped_reuse,
)
from workbench.report.summary import Member, Summary
from workbench.report.table import WIDTH, Line, service_lines, table_lines, wrapped
from workbench.report.words import compiled_words, count_of, interval, over, scored
from workbench.search.front import audit_words
from workbench.values.documents.canonical import encode
from workbench.values.evidence import MEANINGS, said_of, sources_of
from workbench.values.metrics import METRICS, intervals, metrics
from workbench.values.results import STAGES, Evaluation


def lines(summary: Summary) -> str:
    """The whole report as plain text."""
    return "\n".join(text for text, _ in report_lines(summary, WIDTH))


def detail(summary: Summary, candidate_id: str) -> str:
    """One candidate in full: settings, every number, its stages, what became of it, how to run it again.

    Raises:
        KeyError: the sweep has not evaluated it.
    """
    evaluation = summary.find(candidate_id)
    if evaluation is None:
        raise KeyError(candidate_id)
    candidate, chain, predicted = evaluation.candidate, evaluation.toolchain, evaluation.prediction
    head = [candidate.id, summary.title(candidate)]
    head += [f"DAMAGED: {damage_words(summary)}"] if summary.damage else []
    head += ["EMULATED: no number below was measured on a real device."] if chain.emulated else []
    settings = candidate.parameters().items()
    parts = [
        head,
        _fate(summary, evaluation),
        ["Settings", *(f"  {name:<34} {'(none)' if value in (None, '') else value}" for name, value in settings)],
    ]
    for heading, one in (("Validation", evaluation), ("Holdout", summary.confirmations.get(candidate.id))):
        if one is not None and (numbers := _all_numbers(one)):
            parts.append([heading, *numbers])
        if one is not None and one.overflow:
            parts.append([f"Not to be shipped: {one.overflow}"])
    stages = ["Stages"]
    for stage in evaluation.stages:
        cached, files = "  (from the cache)" if stage.cached else "", compiled_words(stage.compiled, stage.shared)
        stages.append(f"  {stage.stage:<34} {stage.seconds:8.2f} s{cached}" + (f"  ({files})" if files else ""))
    parts.append(stages)
    if predicted is not None and (rate := predicted.throughput_per_s) is not None:
        words = f"  service {rate.value:.0f}/s [{rate.low:.0f}, {rate.high:.0f}]"
        before = "compiled" if predicted.shapes else "timed"
        parts.append([f"Predicted before it was {before} whole", words, f"  {predicted.basis}"])
    made = ", ".join(f"{name} {version}" for name, version in sorted(chain.components.items()))
    device = f"  {chain.device}{' (emulated)' if chain.emulated else ''}"
    begun = f"  toolchain {chain.fingerprint[:12]}, begun {evaluation.started_at}"
    parts += [["Made with", f"  {made}", device, begun], ["Run it again", f"  {reproduce(summary, evaluation)}"]]
    return "\n\n".join("\n".join(part) for part in parts)


def reproduce(summary: Summary, evaluation: Evaluation) -> str:
    """The command that evaluates this candidate again."""
    return f"workbench evaluate {shlex.quote(summary.experiment_file)} --candidate {evaluation.candidate.short_id}"


def to_json(summary: Summary) -> dict[str, Any]:
    """Everything `lines` says, as data: keys and metric names are stable, absent means not measured."""
    found: dict[str, Any] = encode(
        {
            "version": 1,
            "experiment": summary.experiment_name,
            "emulated": summary.emulated,
            "objectives": [encode(o) | {"direction": o.direction} for o in summary.objectives],
            "constraints": summary.constraints,
            "factors": taken_apart(summary),
            "run": summary.run,
            "baseline": summary.baseline_id,
            "recommended": summary.recommended,
            "headline": headline(summary),
            "nothing_recommended": "" if summary.recommended is not None else summary.why_none,
            "modelled_errors": modelled_errors(summary),
            "closest": summary.closest,
            "front": [_member_json(summary, member) for member in summary.front],
            "fallen": [_member_json(summary, member) for member in summary.fallen],
            "candidates": [
                {
                    "id": e.candidate.id,
                    "what": summary.title(e.candidate),
                    "standing": summary.standing(e),
                    "evidence": summary.evidence(e),
                    "shared_with": sources_of(e),
                    "stage_reached": e.stage_reached,
                    "parameters": e.candidate.parameters(),
                    "metrics": summary.numbers(e),
                    **({"compiled_files": e.compiled, "shared_files": e.shared} if e.compiled or e.shared else {}),
                }
                for e in summary.evaluations
            ],
            **({"recipes": summary.recipes} if summary.recipes else {}),
            "stopped_reuse": stopped_reuse(summary.evaluations),
            "damage": summary.damage,
            "stops": summary.stops,
            "failures": summary.failures,
        }
    )
    return found


# --- the report, part by part --------------------------------------------------------------------------------------


def report_lines(summary: Summary, width: int) -> list[Line]:
    """The same with a style for each line; on a terminal narrower than `WIDTH` rows of tables take several lines."""
    width = min(WIDTH, width)
    parts = [
        _heading(summary),
        table_lines(summary, width),
        wrapped(*confirmation_sentences(summary), style="yellow"),
        wrapped(*reuse_sentences(summary.evaluations), style="yellow"),
        service_lines(summary, width),
        wrapped(*recipe_sentences(summary)),
        verdict_lines(summary),
        error_lines(summary),
        _rejected(summary),
    ]
    return [line for part in parts if part for line in (("", ""), *part)][1:]


def _heading(summary: Summary) -> list[Line]:
    goals = ", ".join(f"{o.direction} {o.metric}" for o in summary.objectives)
    limits = ", ".join(map(str, summary.constraints))
    found = [
        (f"{summary.experiment_name}: {goals}" + (f"; {limits}" if limits else ""), "bold"),
        (
            f"{count_of(len(summary.evaluations), 'candidate')}, {len(summary.front)} on the Pareto front"
            + (f", {len(summary.fallen)} off it by the confirmation" if summary.fallen else ""),
            "",
        ),
    ]
    files = compiled_words(sum(e.compiled for e in summary.evaluations), sum(e.shared for e in summary.evaluations))
    if files:
        found.append((f"compiled: {files}", ""))
    if predicted := audit_words(summary.evaluations):
        found += wrapped(predicted)
    by = scored(summary.evaluations)
    if by.name != "accuracy":
        found.append((f"accuracy stands for {by.name}{by.manner}, the primary metric of this dataset", ""))
    if summary.emulated:
        words = (
            "EMULATED: no number below was measured on a real device. Times, memory and power are modelled; accuracy "
            "is computed with the emulator's arithmetic."
        )
        found += wrapped(words, style="bold red", indent="")
    cards = Counter(e.place.words for e in summary.evaluations if e.place is not None and e.place.card)
    if len(cards) > 1:
        made = ", ".join(f"{count} on {card}" for card, count in sorted(cards.items()))
        found += wrapped(f"{made}; times of several cards are compared by the float baseline beside each.")
    if summary.damage:
        found += wrapped(f"DAMAGED: {damage_words(summary)}", style="bold red")
        found += wrapped(*(f"  {damage.words()}" for damage in summary.damage), style="red", indent=" " * 4)
    return found


def damage_words(summary: Summary) -> str:
    """What the damage means for the front and the recommendation; nothing where there is none."""
    if not summary.damage:
        return ""
    lost = {d.candidate_id for d in summary.damage if d.split == "validation"}
    unconfirmed = {d.candidate_id for d in summary.damage if d.split == "holdout"}
    words = f"{count_of(len(summary.damage), 'file')} of this sweep cannot be relied on."
    if lost:
        words += f" The front and the recommendation lack {count_of(len(lost), 'candidate')} that was measured."
    if unconfirmed:
        words += f" {count_of(len(unconfirmed), 'candidate')} lost the confirmation on held-out data."
    return words + " To mend it, run the same sweep again."


def verdict_sentences(summary: Summary) -> list[str]:
    """What bears the recommendation out, as every report says it between its headline and its warnings."""
    found, factors = summary.recommended, taken_apart(summary)
    assert found is not None, "there is a recommendation"
    evidence = "" if found.evidence is None else f"Evidence: {found.evidence} ({MEANINGS[found.evidence]})."
    parts = "" if factors is None else factors.sentence()
    said = [found.reason, gate_sentence(summary), evidence, parts, settling_sentence(found)]
    return [sentence for sentence in said if sentence]


def verdict_lines(summary: Summary) -> list[Line]:
    recommended, chosen = summary.recommended, summary.chosen
    if recommended is not None and chosen is not None:
        return [
            *wrapped(headline(summary), style="bold yellow" if recommended.among else "bold green"),
            *wrapped(*verdict_sentences(summary)),
            *wrapped(*(f"Mind: {warning}" for warning in recommended.warnings), style="yellow"),
            *wrapped(f"Again: {reproduce(summary, chosen)}", style="dim"),
        ]
    if summary.front:
        return wrapped(headline(summary), style="bold red")
    closest = summary.closest
    if closest is None:
        return [("No candidate was measured far enough to say anything about the constraints.", "bold red")]
    found: list[Line] = [("No candidate meets every constraint.", "bold red")]
    nearest = summary.find(closest.candidate_id)
    assert nearest is not None, "the closest candidate was evaluated"
    broken = " and ".join(over(name, by) for name, by in closest.violations.items()) or "nothing that was measured"
    words = f"Closest: {nearest.candidate.short_id} ({summary.title(nearest.candidate)}) breaks {broken}"
    words += ", as far as it was measured." if nearest.status == "stopped" else "."
    confirmed = summary.confirmations.get(closest.candidate_id)
    words += f" Not to be shipped: {confirmed.overflow}" if confirmed is not None and confirmed.overflow else ""
    if closest.unknown:
        words += f" Not measured for it: {', '.join(closest.unknown)}."
    if nearest.stop is not None:
        words += f" It was stopped at {nearest.stop.stage}: {nearest.stop.reason}."
    found += wrapped(words + " Loosen that limit, or widen the search space.")
    return found


def _rejected(summary: Summary) -> list[Line]:
    found: list[Line] = []
    for word, counts, style in (("Stopped early", summary.stops, "dim"), ("Failed", summary.failures, "red")):
        if counts:
            reasons = "; ".join(f"{count} at {reason}" for reason, count in sorted(counts.items()))
            found += wrapped(f"{word}: {sum(counts.values())} ({reasons}).", style=style)
    return found


def _fate(summary: Summary, evaluation: Evaluation) -> list[str]:
    standing = summary.standing(evaluation)
    words = {
        "front": "On the Pareto front",
        "dominated": "Feasible; another candidate is at least as good in every objective and better in one",
        "infeasible": "Measured in full; breaks a constraint",
        "stopped": f"Stopped at {evaluation.stage_reached}",
        "failed": f"Failed at {evaluation.stage_reached}",
    }[standing]
    if summary.recommended is not None and summary.chose(evaluation):
        words += ", and chosen among equals" if summary.recommended.among else ", and recommended"
    if why := summary.refusal(evaluation):
        words = f"Measured in full; not to be recommended: {why}"
    found = [words + "."]
    if evaluation.stop is not None:
        found.append(f"Reason: {evaluation.stop.reason}.")
    if evaluation.failure is not None:
        found.append(f"{evaluation.failure.kind}: {evaluation.failure.message}")
        if evaluation.failure.log_path is not None:
            found.append(f"Log: {evaluation.failure.log_path}")
        if evaluation.deserves_another:
            found.append("Another attempt may succeed: the same `workbench sweep` again makes it.")
    if evaluation.place is not None:
        found.append(f"Made on {evaluation.place.words}.")
    if evaluation.attempt > 1:
        found.append(f"This was attempt {evaluation.attempt}.")
    numbers = summary.numbers(evaluation)
    found += [
        f"{'met' if c.violation(numbers[c.metric]) <= 0 else 'BROKEN'}: {c}"
        for c in summary.constraints
        if c.metric in numbers
    ]
    if evaluation.stage_reached in STAGES and standing in ("stopped", "failed"):
        found.append(f"Stage {STAGES.index(evaluation.stage_reached) + 1} of {len(STAGES)}.")
    return found


def _all_numbers(evaluation: Evaluation) -> list[str]:
    numbers, m = metrics(evaluation), evaluation.measurement
    estimates = intervals(evaluation)
    found = []
    for name, value in numbers.items():
        if name.removesuffix("_low").removesuffix("_high") in estimates and name not in estimates:
            continue
        unit = METRICS[name].unit if name in METRICS else ""
        if name == "accuracy_loss" and m.accuracy is not None:
            unit = m.accuracy.unit
        text = f"{value:.6g}"
        level = said_of(evaluation, name)
        if name in estimates:
            text += f"  [{estimates[name].low:.4g}, {estimates[name].high:.4g}]"
        found.append(f"  {name:<34} {text} {unit}".rstrip() + (f"  {level}" if level is not None else ""))
    if m.accuracy is not None:
        own, beyond = m.accuracy.comparison, m.accuracy.against_baseline
        if own is not None:
            to = f"difference to {m.accuracy.reference or 'the baseline'}"
            found.append(f"  {to:<34} p = {own.p_value:.3g}, {own.test}")
        if beyond is not None:
            lost, words = f"loss beyond the baseline's, {beyond.unit}", interval(beyond.drop_pp, "", 2)
            found.append(f"  {lost:<34} {words}  p = {beyond.p_value:.3g}, {beyond.test}")
        if m.accuracy.proof:
            found.append(f"  {'planted noise':<34} {m.accuracy.proof}")
    if m.latency is not None:
        timed = "calls" if m.latency.clock == "modelled" else f"{m.latency.samples} calls"
        found.append(f"  {'timing':<34} {timed} of batch {m.latency.batch}; {m.latency.verdict}")
    return found


def _member_json(summary: Summary, member: Member) -> dict[str, Any]:
    confirmed = member.confirmation
    return {
        "id": member.id,
        "what": summary.title(member.evaluation.candidate),
        "letters": member.letters,
        "evidence": summary.evidence(member.evaluation),
        "parameters": member.evaluation.candidate.parameters(),
        "validation": summary.numbers(member.evaluation),
        "holdout": None if confirmed is None else summary.numbers(confirmed),
        "cut": [] if confirmed is None else confirmed.cut,
        "broken_on_holdout": member.broken_on_holdout,
        "against": member.against,
        "reproduce": reproduce(summary, member.evaluation),
    }
