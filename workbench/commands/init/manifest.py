"""Writing the dataset manifest, with the lengths and the inputs of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.commands.init.axes import FreeAxis
from workbench.commands.init.data import Corpus
from workbench.commands.init.interface import NOTHING, Declared
from workbench.commands.init.interface_text import interface_lines
from workbench.commands.init.metric import WishedMetric
from workbench.commands.init.model import Outline
from workbench.commands.init.scalar import scalar
from workbench.inputs.metrics.agreement import AGAINST
from workbench.values.model import Model
from workbench.values.preprocess import WELL_KNOWN_INPUTS, Role

LENGTHS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
"""Padded lengths to choose from: steps of at most 2x, so that less than half of a long text's work is padding."""

_LONGEST = 512  # what BERT and its relatives take, where the model does not tell


def manifest_text(
    name: str,
    show: Callable[[Path], str],
    outline: Outline,
    corpus: Corpus,
    declared: Declared = NOTHING,
    *,
    axes: Sequence[FreeAxis] = (),
    padded: bool = False,
    metric: WishedMetric | None = None,
) -> str:
    """The dataset manifest.

    Args:
        show: gives the path to write for a file.
        axes: along which samples differ.
        padded: they are padded, because a target compiles every length; else that stands as a comment.
    """
    about = {
        "calibration": "which values do activations take?",
        "validation": "scores candidates during the search",
        "holdout": "never seen by the search; confirms its front",
    }
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
        lines += ["files:", *(f"  {s}: {scalar(show(path))}  # {about[s]}" for s, path in corpus.files.items())]
    if "holdout" not in corpus.files and corpus.loader is None:
        lines += [
            "# There is no holdout file: a seeded shuffle sets this share of the validation aside.",
            "split: {holdout_fraction: 0.5, seed: 0}",
        ]
    if corpus.columns:
        lines.append(f"columns: {{{', '.join(f'{key}: {scalar(text)}' for key, text in corpus.columns.items())}}}")
    if metric is not None:
        lines += ["# Decides what accuracy is, instead of what outputs mean.", f"metric: {metric.text(show)}"]
    elif corpus.task == "tensors":
        lines += _compared_with(corpus, declared)
    if corpus.labels is not None:
        path = show(corpus.labels) if isinstance(corpus.labels, Path) else f"{name}.labels.json"
        lines.append(f"labels: {scalar(path)}  # {corpus.label_note}")
    roles: list[str] = []
    if corpus.tokenizer is not None:
        lines += [f"tokenizer: {scalar(show(corpus.tokenizer))}", *_length_lines(outline, corpus.lengths)]
        roles = _role_lines(outline.model)
    lines += interface_lines(declared, roles)
    lines += _axis_lines(axes, padded=padded)
    return "\n".join(lines) + "\n"


def _compared_with(corpus: Corpus, declared: Declared) -> list[str]:
    if any(AGAINST in dict(use.options) for use in declared.interface.outputs):
        return [
            "# Outputs with `against` are compared with the data's labels, those of the candidate and of the float "
            "model",
            "# alike; their agreement with the float model's own answers has the same names with float_ before them.",
        ]
    found = "Labels are not used" if corpus.truths else "No labels were found"
    return [f"# {found}: candidates are compared with the float model's own answers."]


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
    if all(spec.name in WELL_KNOWN_INPUTS for spec in model.inputs):
        return []
    roles: dict[str, Role] = {}
    for spec in model.inputs:
        name = spec.name.lower()
        if spec.name in WELL_KNOWN_INPUTS:
            roles[spec.name] = WELL_KNOWN_INPUTS[spec.name]
        else:
            roles[spec.name] = "mask" if "mask" in name else "types" if "type" in name or "seg" in name else "ids"
    guessed = "# which input takes the ids, the mask and the segments was guessed from the names"
    return [f"  {scalar(name)}: {role}  {guessed}" for name, role in roles.items()]


def _axis_lines(axes: Sequence[FreeAxis], *, padded: bool) -> list[str]:
    if not axes:
        return []
    lines = []
    for axis in axes:
        half = axis.sizes[len(axis.sizes) // 2]
        lines.append(f"# Samples differ along {axis.use.name!r}: half have up to {half}, the largest {axis.sizes[-1]}.")
    written = [
        "axes:",
        *(f"  {scalar(a.use.name)}: {{bins: [{', '.join(map(str, a.use.bins))}], pad: 0}}" for a in axes),
    ]
    if padded:
        lines.append(
            "# They are padded to the least bin that holds them, since every size is compiled. If padding changes"
        )
        return [*lines, "# what the model gives, bins must be the sizes that samples have.", *written]
    lines.append("# Those of one size share a batch. If padding does not change what the model gives, more can share:")
    return [*lines, *(f"# {line}" for line in written)]
