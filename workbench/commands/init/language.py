"""The first files for a language model's folder: experiment, manifest of texts, search space."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from workbench.commands.init.files import Started, check_new, relative_path, write_all
from workbench.commands.init.manifest import scalar
from workbench.inputs.dataset.language import MOST_BYTES
from workbench.inputs.experiment import read_experiment
from workbench.targets import described, descriptions
from workbench.targets.language import language_target
from workbench.values.documents.input_files import read_text
from workbench.values.errors import ConfigError

_WINDOW = 512
_WINDOWS = 40
_SAMPLES = 16


def initialize_language(
    folder: Path, data: Sequence[Path], to: Path, *, name: str | None = None, targets: Sequence[str] = ()
) -> Started:
    """Write `experiments/NAME.yaml`, `calibration/NAME.yaml` and `search_spaces/NAME.yaml` below `to`, all or none.

    They are read back as `workbench sweep` reads them; where that finds something wrong, none stays.

    Args:
        data: prompts to calibrate with (.jsonl or .json), a text to judge by, and perhaps one that the search never
            sees; without that, half of the windows are held back.
        name: None for the folder's.

    Raises:
        ConfigError: a file exists already, or model and texts do not fit.
        ToolchainError: the packages for language models are not installed.
    """
    chosen = folder.resolve().name if name is None else name
    known = [each.name for each in descriptions() if each.language]
    wanted = [each_name for each in targets for each_name in each.split(",")]
    if wanted and (len(wanted) > 1 or wanted[0] not in known):
        rule, hint = f"{', '.join(wanted)} takes no folder of a language model.", f"One of {', '.join(known)} does."
        raise ConfigError(rule, key="--target", hint=hint)
    if not known:
        raise ConfigError("no target for language models is installed.", key="--target")
    target = described((wanted or known)[0])
    prompts = [path for path in data if path.suffix in (".jsonl", ".json")]
    texts = [path for path in data if path not in prompts]
    if len(prompts) != 1 or not 1 <= len(texts) <= 2:
        raise ConfigError(
            f"{len(prompts)} files of prompts (.jsonl, .json) and {len(texts)} texts.",
            key="--data",
            hint="Give --data prompts.jsonl --data text.txt, and perhaps one more text that the search never sees.",
        )
    manifest, space = to / "calibration" / f"{chosen}.yaml", to / "search_spaces" / f"{chosen}.yaml"
    experiment = to / "experiments" / f"{chosen}.yaml"
    check_new(chosen, (experiment, manifest, space))
    engine = language_target(target.make())
    model, window = engine.read_model(folder), min(_WINDOW, engine.context(folder))
    counts = {"calibration": min(_SAMPLES, len(engine.samples(model, prompts[0])))}
    judging = dict(zip(("validation", "holdout"), texts, strict=False))
    for split, file in judging.items():
        text = read_text(file, limit_bytes=MOST_BYTES)
        counts[split] = len(engine.windows(model, text, window=window, stride=window))
    held = ""
    if "holdout" not in counts:
        held = "split: {holdout_fraction: 0.5}   # of the windows: never seen by the search\n"
        counts["holdout"] = round(counts["validation"] / 2)
        counts["validation"] -= counts["holdout"]
        if not counts["holdout"]:
            rule = f"holds one window of {window} tokens, which leaves a split empty."
            raise ConfigError(rule, file=texts[0], hint="Give more text, or a second one.")
    counts |= {split: min(_WINDOWS, counts[split]) for split in ("validation", "holdout")}

    def shown(path: Path, file: Path) -> str:
        return scalar(relative_path(path, file))

    named = {"calibration": prompts[0], **judging}.items()
    contents = {
        manifest: (
            "# Texts for a language model: prompts to calibrate with, and text in windows that it is judged by.\n"
            "version: 1\n"
            "task: language\n"
            f"files: {{{', '.join(f'{split}: {shown(path, manifest)}' for split, path in named)}}}\n"
            f"window: {window}        # tokens a model is given at once\n"
            f"stride: {window}        # tokens from one window to the next; fewer give every prediction more context\n"
            "measure: perplexity    # or kl: divergence of its predictions from the float model's\n"
            f"{held}"
        ),
        space: target.first_space,
        experiment: (
            "# Which W8A8 recipe keeps the model's predictions, at what size and modelled speed? Times are modelled.\n"
            "version: 1\n"
            f"name: {scalar(chosen)}\n"
            f"model: {shown(folder, experiment)}\n"
            f"dataset: {shown(manifest, experiment)}\n"
            f"target: {target.name}\n"
            f"search_space: {shown(space, experiment)}\n"
            f"calibration: {{samples: {counts['calibration']}}}\n"
            f"validation: {{samples: {counts['validation']}}}   # windows; more make intervals narrower, and take "
            "longer\n"
            f"holdout: {{samples: {counts['holdout']}}}\n"
            "objectives: [perplexity, size_mb, decode_ms]\n"
            "constraints:\n"
            "  accuracy_loss: 2       # at most 2 % more perplexity than the float model; choose your own\n"
            "load: {batch: 8, prompt: 512, context: 1024}   # what times are modelled for\n"
            "budget: {trials: 24, timeout: 45m}   # whichever comes first\n"
            "seed: 0\n"
        ),
    }
    write_all(contents)
    try:
        question = read_experiment(experiment)
    except BaseException:
        for path in contents:
            with contextlib.suppress(OSError):
                path.unlink()
        raise
    notes = (
        f"{question.calibration.samples} calibration texts; {question.dataset.size('validation')} windows of up to "
        f"{window} tokens to judge by, {question.dataset.size('holdout')} that the search never sees",
        "times are modelled: no card is asked for anything",
    )
    commands = (f"workbench plan {experiment}", f"workbench sweep {experiment}")
    return Started(files=(experiment, manifest, space), notes=notes, commands=commands)
