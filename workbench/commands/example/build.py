"""Build one of the four examples: texts, tokenizer, a trained checkpoint, and its proven ONNX export."""

from __future__ import annotations

import collections
import csv
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel

from workbench.commands.example.texts import CLASSES, TAGS, Document, documents
from workbench.values.documents.canonical import canonical_json
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError, ToolchainError, nearest
from workbench.values.system.scratch import scratch_folder
from workbench.values.system.source_closure import closure_digest
from workbench.values.versions import install_command

if TYPE_CHECKING:
    from workbench.graph.export import Task  # torch comes with it: never at run time

EVALUATED_LENGTH = 256
"""Tokens of a text that the reported accuracy reads, as the shipped dataset manifests do."""

_RECEIPT = "build.json"
_OPTIONAL = ("torch", "transformers", "safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What one example is made of.

    Attributes:
        hidden_size: of a BERT of four layers; a head has 64 of them.
        training, calibration, validation, holdout: numbers of texts. Calibration texts are the first training texts;
            validation and holdout texts come from seeds of their own.
        learning_rate: its peak, reached after a tenth of the steps, falling linearly to zero afterwards.
        train_length: training texts are cut to this many tokens: attention over the few long pages would cost more
            time than it teaches.
    """

    task: Task
    hidden_size: int
    layers: int = 4
    training: int
    epochs: int
    batch: int
    learning_rate: float
    train_length: int
    validation: int
    holdout: int
    calibration: int = 512

    @property
    def heads(self) -> int:
        return max(1, self.hidden_size // 64)


_INTENT = Recipe(
    task="classification",
    hidden_size=256,
    training=1760,
    epochs=2,
    batch=32,
    learning_rate=1e-3,
    train_length=64,
    validation=2000,
    holdout=1000,
)
# Tags need many more steps than a class: they hang on single characters and what stands around them.
_NER = Recipe(
    task="ner",
    hidden_size=256,
    training=2000,
    epochs=6,
    batch=8,
    learning_rate=1e-3,
    train_length=320,
    validation=1000,
    holdout=500,
)
RECIPES: Mapping[str, Recipe] = {
    # 110 steps. Twice as many over texts cut at 96 gave 93.6 % of a thousand validation texts; these give 93.8 %.
    "loan-intent-mini": _INTENT,
    "loan-ner-mini": _NER,
    "loan-intent-small": replace(
        _INTENT, hidden_size=512, training=2400, epochs=3, learning_rate=5e-4, train_length=96
    ),
    "loan-ner-small": replace(_NER, hidden_size=512, training=1600, epochs=4, learning_rate=5e-4),
}


def build_example(
    name: str, to: Path, report: Callable[[str], None], *, recipe: Recipe | None = None, seed: int = 0
) -> None:
    """Write everything of one example into the folder `to`, all or nothing.

    `calibration`, `validation` and `holdout` (CSV or JSONL), `labels.json`, `tokenizer.json`, `checkpoint/`,
    `model.onnx` and `build.json` (what was built, and how well it does). Where `to` already holds this very build,
    nothing is done. Takes about a minute for mini, several for small, on 2 cores.

    Args:
        report: receives one line of progress at a time.
        recipe: None for the one of this name.

    Raises:
        ConfigError: the name is unknown, or `to` holds something else.
        ToolchainError: torch or transformers are missing, or the export failed its proof.
    """
    if recipe is None and name not in RECIPES:
        raise ConfigError(f"There is no example {name!r}.", hint=nearest(name, RECIPES))
    recipe = recipe or RECIPES[name]
    built = {"name": name, "recipe": recipe, "seed": seed, "sources": closure_digest("workbench.commands.example")}
    identity = json.loads(canonical_json(built))
    if to.exists():
        hint = "Remove the folder to build it again, or choose another one."
        if not (to / _RECEIPT).is_file():
            raise ConfigError("exists and holds no finished example.", file=to, hint=hint)
        found = read_json(to / _RECEIPT)
        if not isinstance(found, dict) or found.get("identity") != identity:
            rule = "holds another build (other seed, recipe or version of the generator)."
            raise ConfigError(rule, file=to, hint=hint)
        report(f"{name}: already built in {to}")
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder("example", inside=to.parent) as scratch:
        unfinished = scratch / to.name
        unfinished.mkdir()
        measured = _build_into(unfinished, name, recipe, report, seed)
        receipt = {"identity": identity, "measured": measured}
        text = json.dumps(receipt, ensure_ascii=False, indent=1)
        (unfinished / _RECEIPT).write_text(text + "\n", encoding="utf-8")
        unfinished.rename(to)


def _build_into(
    to: Path, name: str, recipe: Recipe, report: Callable[[str], None], seed: int
) -> dict[str, float | int | str]:
    try:
        # torch and transformers take seconds to import and are an optional extra: asked for only here.
        from workbench.commands.example import train
        from workbench.graph.export import convert, quiet_transformers
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL:
            raise
        raise ToolchainError(
            f"Building an example needs {error.name}, which is not installed. Run: {install_command('export')}"
        ) from error

    report(f"{name}: writing texts")
    # Three streams that never meet: texts of neighbouring seeds have nothing in common.
    training = list(documents(recipe.training, 3 * seed))
    validation = list(documents(recipe.validation, 3 * seed + 1))
    holdout = list(documents(recipe.holdout, 3 * seed + 2))
    labels, suffix = (TAGS, "jsonl") if recipe.task == "ner" else (CLASSES, "csv")
    calibration = training[: recipe.calibration]
    for split, texts in (("calibration", calibration), ("validation", validation), ("holdout", holdout)):
        write_texts(texts, to / f"{split}.{suffix}")
    (to / "labels.json").write_text(json.dumps(labels, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    tokenizer = character_tokenizer(document.text for document in training)
    write_tokenizer(tokenizer, to / "tokenizer.json")

    report(f"{name}: training BERT {name.rpartition('-')[2]} on {len(training)} texts")
    started = time.perf_counter()
    model, steps = train.train(
        recipe,
        train.encode(training, tokenizer, labels),
        labels=labels,
        vocabulary_size=tokenizer.get_vocab_size(),
        seed=seed,
        report=lambda line: report(f"{name}: {line}"),
    )
    training_s = time.perf_counter() - started
    # The first 300: enough to see that training went well; the workbench measures accuracy properly later.
    checked = train.encode(validation[:300], tokenizer, labels)
    share = train.accuracy(model, checked, max_length=EVALUATED_LENGTH)
    unit = "texts" if recipe.task == "classification" else "characters"
    report(f"{name}: trained in {training_s:.0f} s, {share:.1%} of validation {unit} right")
    with quiet_transformers():
        model.save_pretrained(to / "checkpoint")

    started = time.perf_counter()
    proof = convert(
        checkpoint=to / "checkpoint",
        task=recipe.task,
        to=to / "model.onnx",
        texts=[document.text for document in validation[:32]],
        tokenizer=to / "tokenizer.json",
        max_length=EVALUATED_LENGTH,
    )
    if proof.failed:
        failed = "; ".join(f"{n} {proof.measured[n]:.3g}, limit {proof.limits[n]:g}" for n in proof.failed)
        raise ToolchainError(f"The exported model does not match PyTorch: {failed}. Check the torch installation.")
    report(f"{name}: exported and compared with PyTorch in {time.perf_counter() - started:.0f} s")
    return {
        "training_s": round(training_s, 1),
        "training_steps": steps,
        f"validation_right_{unit}": round(share, 4),
        **proof.measured,
    }


PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def write_texts(documents: Iterable[Document], to: Path) -> None:
    """CSV with the columns `text,label`, a label by its name; or JSONL, one `{"tokens": [characters], "tags": [BIO]}`
    a line."""
    with to.open("w", encoding="utf-8", newline="") as stream:
        if to.suffix == ".csv":
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(("text", "label"))
            writer.writerows((document.text, document.label) for document in documents)
            return
        for document in documents:
            line = {"tokens": list(document.text), "tags": list(document.tags)}
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def character_tokenizer(texts: Iterable[str], *, minimum_count: int = 2) -> Tokenizer:
    """A tokenizer with one token per character, wrapped in [CLS] … [SEP]; no truncation, no padding.

    Ids: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then characters by falling count, ties by code point. Full-width digits
    and punctuation count as their half-width forms (NFKC). White space is a character like any other, so that a
    text of n characters has n + 2 tokens and tags stay aligned.

    Args:
        minimum_count: characters seen less often become [UNK].
    """
    normalizer = normalizers.NFKC()
    counts = collections.Counter(c for text in texts for c in normalizer.normalize_str(text))
    kept = sorted((c for c, n in counts.items() if n >= minimum_count), key=lambda c: (-counts[c], c))
    vocabulary = {token: i for i, token in enumerate((PAD, UNKNOWN, START, END, *kept))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}",
        pair=f"{START} $A {END} $B:1 {END}:1",
        special_tokens=[(token, vocabulary[token]) for token in (START, END)],
    )
    tokenizer.add_special_tokens([PAD, UNKNOWN, START, END])
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, to: Path) -> None:
    to.write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
