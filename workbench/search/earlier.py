"""Sweeps of a workspace that may tell something to a new one: of which model they were, and how alike that is.

Every sweep notes what its model is like (`subject.json`), since a journal outlives the model's file. Sweeps of before
that note are known by the question they answered, if at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.evaluation.journal import SUBJECT, Journal
from workbench.evaluation.journal_entries import entry_ids, entry_path
from workbench.graph.form import graph_form
from workbench.graph.read import operator_counts, stored_graph
from workbench.values.artifact import Toolchain
from workbench.values.documents.canonical import DecodeError, decode, encode
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ToolchainError
from workbench.values.model import Model
from workbench.values.results import Evaluation, evaluation_from_json

_SAME_FORM, _SAME_OPERATORS, _UNKNOWN = 0.9, 0.35, 0.3
"""Of `_SAME_OPERATORS`: in replays of BERT-mini after a sweep of MiniLM, 0.7 made the search dearer by half and 0.35
left it as it was without (benchmarks/recorded/replay.py --warm)."""
_OTHER_MACHINE = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a sweep is about.

    Attributes:
        model: digest of its float model.
        form: of its graph without the values of its weights.
        operators: how often its graph has each.
    """

    model: str
    form: str
    operators: Mapping[str, int]


def subject_of(model: Model) -> Subject:
    """Raises: ConfigError: the model's file cannot be read any more."""
    if model.is_language_model:
        return Subject(model=model.sha256, form=f"language model of {model.size_bytes} bytes", operators={})
    graph = stored_graph(model)
    return Subject(model=model.sha256, form=graph_form(graph), operators=operator_counts(graph))


def write_subject(journal: Journal, subject: Subject) -> None:
    """Raises: ToolchainError: the disk cannot be written."""
    write_sealed(journal.root / SUBJECT, encode(subject))


def read_subject(journal: Journal) -> Subject | None:
    """None where the sweep says nothing of its model, or it is damaged."""
    try:
        return decode(Subject, read_sealed(journal.root / SUBJECT))
    except (Unsound, DecodeError, ToolchainError):
        return None


def alike(here: Subject, there: Subject | None, *, same_question: bool) -> tuple[float, str]:
    """(How much two sweeps are expected to agree, as far as their models go, within 0 and 1; why, in words)."""
    if same_question or (there is not None and there.model == here.model):
        return 1.0, "the same model"
    if there is None:
        return _UNKNOWN, "a model it says nothing of"
    if there.form == here.form:
        return _SAME_FORM, "another model of the same form"
    shared = _shared(here.operators, there.operators)
    return _SAME_OPERATORS * shared, f"a model with {100 * shared:.0f} % of the operators in common"


def _shared(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """By how much two mixtures of operators overlap; how many there are of each in all does not count."""
    total_a, total_b = sum(a.values()) or 1, sum(b.values()) or 1
    return sum(min(a.get(name, 0) / total_a, b.get(name, 0) / total_b) for name in {*a, *b})


def alike_machine(here: Mapping[str, Toolchain], there: Mapping[str, Toolchain]) -> tuple[float, str]:
    """The same for what they were measured with, by target; both have every target of `there`."""
    if all(here[target].fingerprint == chain.fingerprint for target, chain in there.items()):
        return 1.0, "the same machine and toolchain"
    if all(here[target].device == chain.device for target, chain in there.items()):
        return _OTHER_MACHINE, "another toolchain"
    return _OTHER_MACHINE, "another machine"


def evaluations_of(journal: Journal) -> tuple[dict[str, Evaluation], int]:
    """What another sweep evaluated, in the order it began, and how many of its entries cannot be read.

    The files beside an entry are not looked at: their digests cost a second for each hundred, and nothing is taken from
    them.
    """
    found: list[Evaluation] = []
    unread = 0
    for candidate_id in entry_ids(journal.root, "validation"):
        try:
            body = read_sealed(entry_path(journal.root, candidate_id, "validation"))
            found.append(evaluation_from_json(body["evaluation"]))
        except (Unsound, ToolchainError, ValueError, KeyError, TypeError):
            unread += 1
    return {e.candidate.id: e for e in sorted(found, key=lambda e: (e.started_at, e.candidate.id))}, unread
