"""Writing the dataset manifest, with the lengths and the inputs of text, and a reason behind each line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.commands.init.data import Corpus, FreeAxes
from workbench.commands.init.model import Outline
from workbench.commands.init.retrieval import Searched
from workbench.commands.options import pairs
from workbench.inputs.library_metrics import NAMED, WHOLE_SET
from workbench.inputs.metrics.agreement import AGAINST
from workbench.values.documents.input_files import check_file
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import InputUse, Interface, OutputUse
from workbench.values.model import Model
from workbench.values.preprocess import WELL_KNOWN_INPUTS, Role

_SPLITS = {
    "calibration": "which values do activations take?",
    "validation": "scores candidates during the search",
    "holdout": "never seen by the search; confirms its front",
}


Show = Callable[[Path], str]
"""File → the path to write for it."""


def wished_metric(written: str) -> Callable[[Show], str]:
    """The value of the manifest's key for `file.py:function`, `NAME`, or `NAME:OPTION=VALUE,OPTION=VALUE`."""
    file, colon, function = written.rpartition(":")
    if colon and file.endswith(".py"):
        check_file(Path(file), key="--metric")
        return lambda show: scalar(f"{show(Path(file))}:{function}")
    name, _, rest = written.partition(":")
    if name not in NAMED:
        hint = WHOLE_SET.get(name) or f"Write file.py:function; or {nearest(name, NAMED)}"
        raise ConfigError(f"{name!r} is no metric of a library, nor a function of a file.", key="--metric", hint=hint)
    options, kinds = pairs(filter(None, rest.split(",")), "--metric"), NAMED[name].options

    def text(show: Show) -> str:
        parts = [f"name: {name}"]
        for key, value in options.items():
            kind = kinds.get(key)
            value = show(Path(value)) if kind == "file" else value
            parts.append(f"{key}: {value if kind in ('integer', 'number') else scalar(value)}")
        return f"{{{', '.join(parts)}}}"

    return text


LENGTHS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
"""Padded lengths to choose from: steps of at most 2x, so that less than half of a long text's work is padding."""

_LONGEST = 512  # what BERT and its relatives take, where the model does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a manifest is about.

    Attributes:
        reasons: 'inputs.NAME' or 'state.NAME' → why it was written.
        axes: along which samples differ.
        padded: they are padded, because a target compiles every length; else that stands as a comment.
    """

    outline: Outline
    corpus: Corpus
    interface: Interface
    reasons: Mapping[str, str]
    metric: Callable[[Show], str] | None
    axes: FreeAxes
    padded: bool


def manifest_text(name: str, show: Show, subject: Subject) -> str:
    """The dataset manifest; `show` gives the path to write for a file."""
    outline, corpus, interface, metric = subject.outline, subject.corpus, subject.interface, subject.metric
    lines = [
        f"# Dataset of the experiment {name}. Check the splits: they were told apart by the files' names and order.",
        "# Paths are relative to this file.",
        "version: 1",
        f"task: {corpus.task}",
    ]
    if corpus.loader is not None:
        file, function = corpus.loader
        lines.append(f"loader: {scalar(f'{show(file)}:{function}')}  # is called with the name of each split")
    else:
        lines += ["files:", *(f"  {s}: {scalar(show(path))}  # {_SPLITS[s]}" for s, path in corpus.files.items())]
    if "holdout" not in corpus.files and corpus.loader is None:
        lines += [
            "# There is no holdout file: a seeded shuffle sets this share of the validation aside.",
            "split: {holdout_fraction: 0.5, seed: 0}",
        ]
    if corpus.columns:
        lines.append(f"columns: {_mapping(corpus.columns)}")
    if metric is not None:
        lines += ["# Decides what accuracy is, instead of what outputs mean.", f"metric: {metric(show)}"]
    elif corpus.searched is not None:
        lines += _retrieval_lines(corpus.searched, show)
    elif corpus.task == "tensors":
        found = "Labels are not used" if corpus.truths else "No labels were found"
        said = [f"# {found}: candidates are compared with the float model's own answers."]
        if any(AGAINST in dict(use.options) for use in interface.outputs):
            said = [
                "# Outputs with `against` are compared with the data's labels, those of the candidate and of the float "
                "model",
                "# alike; their agreement with the float model's own answers has the same names with float_ before "
                "them.",
            ]
        lines += said
    if corpus.labels is not None:
        path, note = f"{name}.labels.json", "the data number the classes, so the names are numbers; rename at will"
        if isinstance(corpus.labels, Path):
            path, note = show(corpus.labels), "names in the order of the model's outputs"
        elif not all(name.isdigit() for name in corpus.labels):
            note = "id2label of the checkpoint's config.json beside the model"
        lines.append(f"labels: {scalar(path)}  # {note}")
    roles: list[str] = []
    if corpus.tokenizer is not None:
        lines += [f"tokenizer: {scalar(show(corpus.tokenizer))}", *_length_lines(outline, corpus.lengths)]
        roles = _role_lines(outline.model)
    lines += _interface_lines(interface, subject.reasons, roles)
    lines += _axis_lines(subject.axes, padded=subject.padded)
    return "\n".join(lines) + "\n"


def _retrieval_lines(found: Searched, show: Show) -> list[str]:
    lines = ["# Decides what accuracy is: which documents each query finds.", "retrieval:"]
    lines += [f"  {key}: {scalar(show(path))}" for key, path in found.files.items()]
    lines += [f"  columns: {_mapping(found.documents)}"] if found.documents else []
    return [
        *lines,
        *(f"  {key}: {v if v.isdigit() else scalar(v)}{_because(why)}" for key, (v, why) in found.words.items()),
    ]


def _mapping(columns: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{key}: {scalar(text)}' for key, text in columns.items())}}}"


def max_length_of(outline: Outline, corpus: Corpus) -> int | None:
    """Of texts; None for data that are not."""
    if not corpus.lengths:
        return None
    return choose_lengths(corpus.lengths, longest=outline.longest, fixed=outline.fixed_length)[0]


def choose_lengths(lengths: Sequence[int], *, longest: int | None, fixed: int | None) -> tuple[int, tuple[int, ...]]:
    """(max_length, bins) that cut no text the model could take and hold no bin that no text falls into.

    Args:
        lengths: tokens of the data's texts, at least one.
        longest: tokens the model takes, None where it does not tell.
        fixed: the one length a model of fixed shape takes.
    """
    if fixed is not None:
        return fixed, (fixed,)
    limit = longest or _LONGEST
    bins = {min(limit, next((b for b in LENGTHS if b >= length), limit)) for length in lengths}
    return max(bins), tuple(sorted(bins))


def _length_lines(outline: Outline, lengths: Sequence[int]) -> list[str]:
    max_length, bins = choose_lengths(lengths, longest=outline.longest, fixed=outline.fixed_length)
    cut_percent = 100 * sum(length > max_length for length in lengths) / len(lengths)
    half = lengths[len(lengths) // 2]
    if outline.fixed_length is not None:
        why = "the model takes this length only"
    elif outline.longest is not None:
        why = f"the model's position table allows {outline.longest}"
    else:
        why = f"the model does not tell its limit; {_LONGEST} is BERT's"
    return [
        f"# Of {len(lengths)} texts measured, half have up to {half} tokens and the longest has {lengths[-1]}; {why}.",
        f"max_length: {max_length}  # tokens, special ones included; {cut_percent:.2g} % of the texts are cut",
        "# A batch is padded to the smallest bin that holds its longest text: fewer bins, more padding.",
        f"bins: [{', '.join(map(str, bins))}]",
    ]


def _role_lines(model: Model) -> list[str]:
    """Entries of `inputs:` where a name is not one that the workbench knows; guessed from the name, then checked by
    reading."""
    roles: dict[str, Role] = {}
    for spec in model.inputs:
        name = spec.name.lower()
        guess: Role = "mask" if "mask" in name else "types" if "type" in name or "seg" in name else "ids"
        roles[spec.name] = WELL_KNOWN_INPUTS.get(spec.name, guess)
    if roles.keys() <= WELL_KNOWN_INPUTS.keys():
        return []
    guessed = "# which input takes the ids, the mask and the segments was guessed from the names"
    return [f"  {scalar(name)}: {role}  {guessed}" for name, role in roles.items()]


def _axis_lines(axes: FreeAxes, *, padded: bool) -> list[str]:
    if not axes:
        return []
    written = [f"  {scalar(a)}: {{bins: [{', '.join(map(str, bins))}], pad: 0}}" for a, (bins, _) in axes.items()]
    lines = []
    for axis, (_, sizes) in axes.items():
        half = sizes[len(sizes) // 2]
        lines.append(f"# Samples differ along {axis!r}: half have up to {half}, the largest {sizes[-1]}.")
    if padded:
        return [
            *lines,
            "# They are padded to the least bin that holds them, since every size is compiled. If padding changes",
            "# what the model gives, bins must be the sizes that samples have.",
            "axes:",
            *written,
        ]
    lines.append("# Those of one size share a batch. If padding does not change what the model gives, more can share:")
    return [*lines, "# axes:", *(f"# {line}" for line in written)]


def _interface_lines(found: Interface, reasons: Mapping[str, str], roles: Sequence[str]) -> list[str]:
    """
    Args:
        roles: entries of `inputs:` for texts, as lines.
    """
    lines = [
        f"  {scalar(use.name)}: {{{_use(use)}}}{_because(reasons.get(f'inputs.{use.name}', ''))}"
        for use in found.inputs
    ]
    lines = ["inputs:", *roles, *lines] if roles or lines else []
    if found.state:
        lines += [
            "# Output: the input it is carried to from step to step. Arrays have an axis of steps behind that of",
            "# samples: [samples, steps, ...].",
            "state:",
            *(f"  {scalar(o)}: {scalar(i)}{_because(reasons.get(f'state.{o}', ''))}" for o, i in found.state),
        ]
    if found.outputs:
        lines += [
            "# What each output means decides how a candidate is compared with the float model; the first one's",
            "# metric is the accuracy. Limits of others: limits: {METRIC: WORST VALUE} in the mapping.",
            "outputs:",
            *(f"  {scalar(use.name)}: {_meaning(use)}{_because(use.reason)}" for use in found.outputs),
        ]
    return lines


def _use(use: InputUse) -> str:
    if use.constant is not None:
        return f"constant: {json.dumps(use.constant)}"
    return f"axes: [{', '.join(scalar(axis) if isinstance(axis, str) else str(axis) for axis in use.axes)}]"


def _meaning(use: OutputUse) -> str:
    if not use.options and not use.limits:
        return use.meaning
    parts = [f"meaning: {use.meaning}"]
    parts += [f"{key}: {scalar(value) if isinstance(value, str) else json.dumps(value)}" for key, value in use.options]
    if use.limits:
        parts.append(f"limits: {{{', '.join(f'{key}: {value:g}' for key, value in use.limits)}}}")
    return f"{{{', '.join(parts)}}}"


def _because(reason: str) -> str:
    return f"  # {' '.join(reason.split())}" if reason else ""


_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "."}  # of YAML 1.1 and 1.2


def scalar(text: str) -> str:
    """A YAML scalar that every reader takes for this very text."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT
    return text if plain else json.dumps(text, ensure_ascii=False)
