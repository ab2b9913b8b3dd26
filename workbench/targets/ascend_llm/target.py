"""The target for language models: msModelSlim's checkpoints, made and executed on the host's processors.

Numbers are what the card computes, as far as its documents say (`execution`); times are those of the timing
model, and no card is asked for anything. See `workbench.targets.language`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import torch
from tokenizers import Tokenizer

from workbench.quantization.llm.checkpoint import LlmModel, open_model
from workbench.quantization.llm.fixed_order import kernels
from workbench.quantization.llm.forward import Decoder, check_ids, greedy, logits_of
from workbench.quantization.llm.outcomes import float_outcomes, float_reference, text_outcomes, windows_of
from workbench.quantization.llm.recipe import LlmRecipe
from workbench.quantization.llm.run import group_errors
from workbench.quantization.record import QuantizationRecord
from workbench.targets.ascend_llm.calibrate import quantize_samples
from workbench.targets.ascend_llm.description import GROUPS, LlmSettings
from workbench.targets.ascend_llm.execution import served_decoder
from workbench.targets.ascend_llm.needs import checkpoint_bytes, window_ms
from workbench.targets.ascend_llm.recipes import read_recipe, recipe_text, refused_by_engine
from workbench.targets.ascend_llm.served import Served, read_served
from workbench.targets.ascend_llm.serving_times import served_costs
from workbench.targets.ascend_llm.tensors import DESCRIPTION
from workbench.targets.ascend_llm.texts import calibration_samples, read_texts, read_tokenizer
from workbench.targets.base import OperatorIssue, Session
from workbench.targets.common import compiled_file
from workbench.targets.language import Ids, LanguageCosts, Scores, Seen, Tokens
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.errors import CalibrationError, ConfigError, LoweringError, MeasureError
from workbench.values.measurement import LanguageLoad
from workbench.values.model import Model, TensorSpec
from workbench.values.paired_scores import TokenWindow, WindowOutcomes
from workbench.values.system.cpu import this_cpu

RECIPE = "recipe.yaml"
_ENGINE = "See docs/llm.md on what an engine would refuse."
_TOKENS = ("tokenizer.json", "tokenizer_config.json")
_INTEGER = ("W8A8", "W8A8_DYNAMIC", "W8A8_MIX")


class AscendLlmTarget:
    """See `workbench.targets.language.LanguageTarget`."""

    name = "ascend-llm"

    def toolchain(self) -> Toolchain:
        return Toolchain(
            target=self.name,
            components={name: version(name) for name in ("torch", "safetensors", "transformers", "tokenizers")},
            device=this_cpu().name,
            features=tuple(sorted((*this_cpu().features, kernels()))),
        )

    def devices(self) -> int:
        return 1

    def read_model(self, folder: Path) -> Model:
        model = open_model(folder)
        weights = dict.fromkeys(model.places.values())
        files = [folder / "config.json", *weights, *(folder / name for name in _TOKENS if (folder / name).is_file())]
        read_tokenizer(folder, model.config)
        held = [compiled_file(folder, file.name) for file in files]
        return Model(
            path=folder,
            sha256=digest([[each.file, each.sha256] for each in held]),
            size_bytes=sum(each.size_bytes for each in held),
            opset=0,
            inputs=(TensorSpec(name="input_ids", dtype="int64", shape=("batch", "tokens")),),
            outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", "tokens", model.config.vocabulary)),),
        )

    def context(self, folder: Path) -> int:
        return open_model(folder).config.context

    def samples(self, model: Model, texts: Path) -> Sequence[Ids]:
        opened = open_model(model.path)
        made = calibration_samples(read_texts(texts, model.path), read_tokenizer(model.path, opened.config), model.path)
        try:
            check_ids(opened.config, made)
        except ConfigError as error:
            raise ConfigError(error.rule, file=texts, hint=error.hint) from error
        return [each[0].numpy() for each in made]

    def windows(self, model: Model, text: str, *, window: int, stride: int) -> Sequence[TokenWindow]:
        config = open_model(model.path).config
        ids = read_tokenizer(model.path, config).encode(text, add_special_tokens=False).ids
        return windows_of([ids], window=window, stride=stride, context=config.context)

    def check(self, model: Model, candidate: Candidate) -> tuple[OperatorIssue, ...]:
        settings = LlmSettings.of(candidate)
        try:
            opened = open_model(model.path)
            if candidate.quantization.scheme == "none":
                return ()
            with tempfile.TemporaryDirectory(prefix="workbench-recipe-") as folder:
                (Path(folder) / RECIPE).write_text(recipe_text(settings), encoding="utf-8")
                read = read_recipe(Path(folder) / RECIPE, opened)
        except ConfigError as error:
            return (_issue("error", error.key or "recipe", error.rule, error.hint or "Take another recipe."),)
        wrong = _refused(read.recipe, opened)
        said = [sentence for sentence in refused_by_engine(read.recipe, opened) if sentence not in wrong]
        return (
            *(_issue("error", "recipe", sentence, _ENGINE) for sentence in wrong),
            *(_issue("warning", "recipe", sentence, _ENGINE) for sentence in said),
        )

    def rank(self, model: Model, samples: Sequence[Ids]) -> Mapping[str, float]:
        found = group_errors(open_model(model.path), [torch.from_numpy(ids)[None] for ids in samples], GROUPS)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def write_checkpoint(
        self,
        model: Model,
        candidate: Candidate,
        samples: Sequence[Ids],
        ranking: Callable[[], Mapping[str, float]],
        to: Path,
    ) -> Artifact:
        opened, settings = open_model(model.path), LlmSettings.of(candidate)
        if candidate.quantization.scheme == "none":
            # the folder as it is: nothing is copied
            names = [file.name for file in dict.fromkeys(opened.places.values())]
            names += ["config.json", *(name for name in _TOKENS if (opened.folder / name).is_file())]
            return self._artifact(opened.folder, names, {"FLOAT": len(list(opened.linears()))})
        text = recipe_text(settings, _left_float(settings, ranking() if settings.left_float else {}))
        given = [torch.from_numpy(ids)[None] for ids in samples]
        (to / RECIPE).write_text(text, encoding="utf-8")
        try:
            read = read_recipe(to / RECIPE, opened)
        except ConfigError as error:
            raise CalibrationError(f"the recipe does not fit the model: {error.rule}") from error
        if wrong := _refused(read.recipe, opened):
            raise CalibrationError(f"an engine would refuse it: {wrong[0]}")
        made = quantize_samples(opened, read, to / RECIPE, {"calibration": given}, to)
        return self._artifact(to, (*made.files, RECIPE), made.types)

    def _artifact(self, folder: Path, names: Iterable[str], types: Mapping[str, int]) -> Artifact:
        """Args:
        types: type → how many linears of the blocks have it.
        """
        integer = sum(count for kind, count in types.items() if kind in _INTEGER)
        return Artifact(
            target=self.name,
            files=tuple(compiled_file(folder, name) for name in sorted(names)),
            toolchain=self.toolchain(),
            int8_ops=integer,
            float_matmuls_left=sum(types.values()) - integer + 1,
            kernels=types,
        )

    def window_ms(self, model: Model, tokens: int) -> float:
        return window_ms(open_model(model.path), tokens)

    def checkpoint_bytes(self, model: Model) -> int:
        opened = open_model(model.path)
        return checkpoint_bytes(opened.config, set(opened.linears()))

    def keep_reference(self, model: Model, windows: Sequence[TokenWindow], to: Path) -> None:
        float_reference(open_model(model.path), windows, kept_in=to)

    def scores(
        self,
        model: Model,
        candidate: Candidate,
        artifact: Artifact,
        directory: Path,
        windows: Sequence[TokenWindow],
        kept_in: Path,
    ) -> Scores:
        reference = float_reference(open_model(model.path), windows, kept_in=kept_in)
        is_float = candidate.quantization.scheme == "none"
        forward = None if is_float else logits_of(served_decoder(_written(directory)), "decode")

        def scores(start: int, stop: int) -> WindowOutcomes:
            chosen, floats = windows[start:stop], reference(start, stop)
            if forward is None:
                return float_outcomes(chosen, floats)
            return text_outcomes(candidate.short_id, chosen, floats, forward, first=start)

        return scores

    def decides_outputs(self, artifact: Artifact) -> str:
        """Weights, description and sizes; the recipe that led to them says nothing."""
        said = ("config.json", DESCRIPTION)
        deciding = [f for f in artifact.files if f.file.endswith(".safetensors") or f.file in said]
        return digest([artifact.toolchain, [[file.file, file.sha256] for file in deciding]])

    def costs(self, model: Model, artifact: Artifact, directory: Path, load: LanguageLoad) -> LanguageCosts:
        served = _written(directory) if (directory / DESCRIPTION).is_file() else None
        return served_costs(open_model(model.path).config, served, load)

    def lower(self, model: Model, candidate: Candidate, record: QuantizationRecord | None, to: Path) -> Path:
        raise LoweringError(_NO_GRAPH)

    def compile(self, lowered: Path, candidate: Candidate, to: Path) -> Artifact:
        raise LoweringError(_NO_GRAPH)

    def open(self, artifact: Artifact, directory: Path, candidate: Candidate, *, device: int = 0) -> Session:
        raise MeasureError(_NO_GRAPH)

    def prompted(self, directory: Path) -> Prompted:
        return prompted(directory)

    def finished(self, directory: Path) -> Artifact:
        files = (file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file())
        return self._artifact(directory, files, Counter(read_served(directory).types.values()))

    def probe(self, lowered: Path, tensors: Sequence[str]) -> Session:
        raise MeasureError(_NO_GRAPH)


_NO_GRAPH = "a language model is a folder, not a graph: no engine here opens it. Sweep it, or evaluate its checkpoint."


def _refused(recipe: LlmRecipe, model: LlmModel) -> tuple[str, ...]:
    """What an engine would refuse or compute wrongly, but for the type of a float32 model: that is evaluated as what it
    would be in bfloat16."""
    return refused_by_engine(recipe, replace(model, config=replace(model.config, dtype=torch.bfloat16)))


def _written(directory: Path) -> Served:
    try:
        return read_served(directory)
    except ConfigError as error:
        raise MeasureError(f"an engine would not read what was written: {error}") from error


def _left_float(settings: LlmSettings, ranking: Mapping[str, float]) -> list[str]:
    """Full names of the linears that stay float: of `down_proj` first, then of whatever hurts most among the rest that
    the recipe quantizes."""
    quantized = [group for group in GROUPS if settings.type_of(group) != "FLOAT"]
    ranked = [name for name in ranking if name.rpartition(".")[2] in quantized]
    down = [name for name in ranked if name.endswith(".down")][: settings.float_down]
    rest = [name for name in ranked if name not in down][: settings.float_groups]
    chosen = (name.rpartition(".")[::2] for name in (*down, *rest))
    return [f"{block}.{linear}" for block, group in chosen for linear in GROUPS[group]]


def _issue(severity: str, node: str, problem: str, remedy: str) -> OperatorIssue:
    return OperatorIssue(
        severity="error" if severity == "error" else "warning",
        node=node,
        operator="",
        problem=problem,
        remedy=remedy,
        source="msmodelslim.md §7, §8",
    )


# --- a finished checkpoint that answers prompts ----------------------------------------------------------------------


def prompted(directory: Path) -> Prompted:
    """See `targets.language.LanguageTarget`. Weights stay in memory from the first answer on."""
    with _as_measured():
        served = read_served(directory)
        tokenizer = read_tokenizer(directory, served.config)
    return Prompted(served=served, tokenizer=tokenizer, decoder=served_decoder(served, keep=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted:
    """See `targets.language.PromptedModel`.

    Attributes:
        threads: of torch while it answers; None for those of the process.
        whole: it reads a prompt with the answer that it is given in one pass.
    """

    served: Served
    tokenizer: Tokenizer
    decoder: Decoder
    threads: int | None = None
    whole: bool = False

    @property
    def vocabulary(self) -> int:
        return self.served.config.vocabulary

    @property
    def context(self) -> int:
        return self.served.config.context

    @property
    def device_words(self) -> str:
        return " ".join(self.served.unserved)

    def ids(self, text: str) -> list[int]:
        with _as_measured():
            found: list[int] = calibration_samples([text], self.tokenizer, self.served.folder)[0][0].tolist()
        return found

    def text(self, ids: Tokens) -> str:
        return str(self.tokenizer.decode(list(ids)))

    def answers(
        self, prompts: Sequence[Tokens], tokens: int, seen: Seen, *, given: Sequence[Tokens] | None = None
    ) -> list[list[int]]:
        asked = [torch.tensor([list(ids)]) for ids in prompts]
        with _as_measured(), _threads(self.threads):
            longest, config = max(ids.shape[1] for ids in asked) + tokens - 1, self.served.config
            if longest > config.context:  # so that no answer ends at the context
                said = f"A prompt with its answer has {longest} tokens, the model's context is {config.context}."
                raise MeasureError(said)
            check_ids(config, asked)
            if not self.whole:
                found = greedy(
                    self.decoder,
                    asked,
                    tokens,
                    given=None if given is None else [torch.tensor(list(ids)) for ids in given],
                    seen=lambda prompt, step, logits: seen(prompt, step, logits.to(torch.float32).numpy()),
                )
                return [ids.tolist() for ids in found]
            assert given is not None  # whoever asks in one pass has the answers
            windows = [
                torch.tensor([[*ids, *answer[: tokens - 1]]]) for ids, answer in zip(prompts, given, strict=True)
            ]
            for number, logits in enumerate(logits_of(self.decoder, "prefill")(windows)):
                for step, row in enumerate(logits[0, len(prompts[number]) - 1 :]):
                    seen(number, step, row.to(torch.float32).numpy())
            return [list(ids) for ids in given]

    def ways(self) -> Mapping[str, Prompted]:
        other = 1 if torch.get_num_threads() > 1 else 2
        plural = "" if other == 1 else "s"
        found = {f"{other} thread{plural} instead of {torch.get_num_threads()}": replace(self, threads=other)}
        if not self.served.cached and "W8A8_MIX" not in self.served.types.values():
            # these two compute a prompt otherwise than an answer, so that a whole window means something else
            found["prompt and answer in one pass instead of token by token"] = replace(self, whole=True)
        return found


@contextlib.contextmanager
def _as_measured() -> Iterator[None]:
    """What is wrong with a checkpoint is said of a compiled model that does not run."""
    try:
        yield
    except ConfigError as error:
        raise MeasureError(str(error)) from error


@contextlib.contextmanager
def _threads(number: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
