"""One model rather than a sweep: calibrate it as AMCT does, compare two of its forms."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from workbench.api.opening import named_candidate, opened
from workbench.evaluation.build import lowered_file
from workbench.graph.read import read_model
from workbench.inputs.experiment import Experiment
from workbench.quantization.observe import Feeds
from workbench.study.amct_command import Calibrated, calibrate_model
from workbench.study.comparison import Comparison, Limits, Side, engine_of, side_of
from workbench.study.comparison import compare as compare_sides
from workbench.study.model_data import open_data, random_data
from workbench.values.errors import ConfigError

_log = logging.getLogger(__name__)


def calibrate(
    model: Path | str,
    to: Path | str,
    *,
    data: Path | str | None = None,
    cfg: Path | str | None = None,
    record: Path | str | None = None,
    on_message: Callable[[str], None] = _log.info,
) -> Calibrated:
    """Quantize one model as AMCT does and write record.txt, config.json, the deploy model and a QDQ model into `to`.

    Args:
        data: an NPZ file with one array per batch, or a dataset manifest; needed unless there is a `record`.
        cfg: AMCT's simplified configuration or quantization JSON; None for AMCT's own defaults.
        record: a record file to lower as it is, without calibrating.
        on_message: told in a sentence what is calibrated.

    Raises:
        ConfigError: a file is missing, damaged or does not fit the model.
        CandidateError: the model cannot be run, calibrated or lowered.
        ToolchainError: the folder cannot be written.
    """
    return calibrate_model(
        Path(model), Path(to), data=_path(data), cfg=_path(cfg), record=_path(record), report=on_message
    )


def compare(
    a: Path | str,
    b: Path | str,
    *,
    data: Path | str | None = None,
    experiment: Experiment | Path | str | None = None,
    workspace: Path | str | None = None,
    samples: int = 64,
    batch: int = 8,
    limits: Limits | None = None,
    every: bool = False,
) -> Comparison:
    """Compare two models layer by layer, A being the reference: where do their numbers part?

    Args:
        a, b: FILE or ENGINE:FILE, ENGINE one of a target's name and 'deploy'; with an experiment also a candidate: its
            id or first digits, its JSON file, or 'baseline'.
        data: an NPZ file or a dataset manifest; random values when None. With an experiment, its validation split.
        samples, batch: so many samples at most, where the data has more, and so many in a run.
        every: compare what every operator computes, not only the layers; takes longer.

    Raises:
        ConfigError: a file or a name is wrong, or the two share nothing to compare.
        CandidateError: an engine cannot run its model.
    """
    for name, number in (("samples", samples), ("batch", batch)):
        if number < 1:
            raise ConfigError(f"{number} is less than 1.", key=name)
    if experiment is None:
        side_a, side_b = side_of(str(a)), side_of(str(b))
        batches, about = _batches(side_a, _path(data), samples, batch)
        return compare_sides(side_a, side_b, batches, data=about, limits=limits, every=every)
    if data is not None:
        raise ConfigError("is not read beside an experiment, whose validation split is taken.", key="data")
    with opened(experiment, workspace, scratch=True) as (question, bench):

        def side(text: str) -> Side:
            if ":" in text or text.endswith(".onnx"):
                return side_of(text)
            candidate = named_candidate(text, question)
            file = lowered_file(question, candidate, bench)
            engine = engine_of(candidate.target)
            return Side(about=f"{candidate.short_id} in {engine}", engine=engine, path=file)

        feeds = (b.feeds for b in question.dataset.batches("validation", batch, stop=samples))
        about = f"{question.name}, validation split"
        return compare_sides(side(str(a)), side(str(b)), feeds, data=about, limits=limits, every=every)


def _batches(side: Side, data: Path | None, samples: int, batch: int) -> tuple[Iterable[Feeds], str]:
    model = read_model(side.path)
    if data is None:
        found = random_data(model, batch=batch, count=-(-samples // batch))
    else:
        found = open_data(data, model, batch=batch, samples=samples)
    return found.read(), found.about


def _path(given: Path | str | None) -> Path | None:
    return None if given is None else Path(given)
