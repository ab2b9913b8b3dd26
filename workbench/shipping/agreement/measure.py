"""An agreement: of a candidate, of a bundle's own files, of sessions that are open anyway."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from workbench.bundle.opened import Bundle
from workbench.evaluation.bench import Bench
from workbench.inputs.answers import read_answers
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import scored_output
from workbench.inputs.metrics.extents import Extents
from workbench.inputs.metrics.scorer import not_by_distance, uses_of
from workbench.shipping.agreement.compared import Asked, Comparison, Pair
from workbench.shipping.agreement.ways import (
    Missing,
    Shape,
    Way,
    compiled,
    float32_of,
    of_checkpoint,
    on_the_host,
    opened,
)
from workbench.targets.base import Session, computes_in_float32
from workbench.values.agreement import AgreementPath, Agreements
from workbench.values.candidate import Candidate
from workbench.values.errors import BundleError, CandidateError, ConfigError
from workbench.values.service import ServiceSettings

_NOT_ASKED = "`workbench agreement` measures it"


def agreement_of_candidate(
    experiment: Experiment, candidate: Candidate, bench: Bench, service: ServiceSettings, asked: Asked
) -> Agreements:
    """All ways, compiled where they were not yet.

    Args:
        service: how the candidate is served.

    Raises:
        CandidateError: the candidate itself cannot be compiled, opened or run.
        ConfigError: the answers are to other inputs, or the checkpoint that was named is none.
    """
    with contextlib.ExitStack() as closing:
        asked.report("what ships", 0.0)
        served = compiled(experiment, candidate, bench, closing, "the candidate's files")
        return _measured(experiment, candidate, bench, service, asked, served)


def agreement_of_bundle(experiment: Experiment, bundle: Bundle, bench: Bench, asked: Asked) -> Agreements:
    """The same with a bundle's own files, as they lie.

    Raises:
        BundleError: the bundle was made from another model, or for another target, than the experiment has.
    """
    manifest = bundle.manifest
    if manifest.model.sha256 != experiment.model.sha256 or manifest.candidate.target not in bench.targets:
        raise BundleError(
            f"{bundle.directory}: it was made from {manifest.model.file} ({manifest.model.sha256[:12]}) for "
            f"{manifest.candidate.target}; {experiment.path.name} has {experiment.model.path.name} "
            f"({experiment.model.sha256[:12]}) for {', '.join(bench.targets)}. Name the experiment it comes from."
        )
    bundle.check_model()
    with contextlib.ExitStack() as closing:
        asked.report("the bundle's files", 0.0)
        session = bench.target(manifest.candidate).open(manifest.artifact, bundle.model_directory, manifest.candidate)
        served = opened(session, experiment, manifest.candidate, bench, closing, "the bundle's files")
        return _measured(experiment, manifest.candidate, bench, manifest.service, asked, served)


def agreement_of_sessions(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    *,
    session: Session,
    baseline: Session,
    asked: Asked,
) -> Agreements:
    """Of what is open in an evaluation: nothing further is compiled.

    Args:
        baseline: the float model as it runs today, or the very same session for the baseline itself.
    """
    largest = max(candidate.compile.compiled_batches(), default=candidate.serving.batch)
    ways: dict[AgreementPath, Way] = {}
    missing: dict[str, str] = {"pytorch": _NOT_ASKED, "old platform": _NOT_ASKED}
    with contextlib.ExitStack() as closing:
        ways["float32"] = on_the_host(experiment, closing)
        float_path: AgreementPath = "float16 compiled"
        if computes_in_float32(experiment.baseline):
            float_path, missing["float16 compiled"] = "float32 compiled", "the float model runs in float32 here"
        else:
            missing["float32 compiled"] = _NOT_ASKED
        ways[float_path] = opened(baseline, experiment, experiment.baseline, bench, None, "the float baseline's files")
        ways["served"] = opened(session, experiment, candidate, bench, None, "the candidate's files")
        return _compared(experiment, candidate, ServiceSettings(max_batch_size=largest), asked, ways, missing)


def _measured(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    service: ServiceSettings,
    asked: Asked,
    served: Way,
) -> Agreements:
    ways: dict[AgreementPath, Way] = {}
    missing: dict[str, str] = {}
    baseline = experiment.baseline
    with contextlib.ExitStack() as closing:

        def take(path: AgreementPath, make: Callable[[], Way]) -> None:
            asked.report(path, 0.0)
            try:
                ways[path] = make()
            except (Missing, CandidateError) as error:
                missing[path] = str(error)

        take("pytorch", lambda: of_checkpoint(experiment, asked.checkpoint))
        ways["float32"] = on_the_host(experiment, closing)
        take(
            "float32 compiled",
            lambda: compiled(experiment, float32_of(experiment), bench, closing, "the float model in float32"),
        )
        if computes_in_float32(baseline):
            missing["float16 compiled"] = "the float model runs in float32 here"
        else:
            mode = baseline.precision.mode
            take("float16 compiled", lambda: compiled(experiment, baseline, bench, closing, f"the float model, {mode}"))
        ways["served"] = served
        if asked.answers is None:
            missing["old platform"] = "no file of its answers was given: --reference answers.npz"
        return _compared(experiment, candidate, service, asked, ways, missing)


def _compared(
    experiment: Experiment,
    candidate: Candidate,
    service: ServiceSettings,
    asked: Asked,
    ways: dict[AgreementPath, Way],
    missing: dict[str, str],
) -> Agreements:
    data = experiment.dataset.with_bins(service.sequence_bins or candidate.sequence_bins)
    recorded = None if asked.answers is None else read_answers(asked.answers)
    size = min(asked.samples or data.size(asked.split), data.size(asked.split))
    words = f"comparing {len(ways) + (recorded is not None)} ways over {size} samples of {asked.split}"
    comparison = Comparison(
        ways,
        data=data,
        most=service.max_batch_size,
        shapes=_shapes(experiment, candidate),
        asked=asked,
        pair=_pair(experiment),
        recorded=recorded,
        model=experiment.model if asked.scored and data.retrieval is None else None,
    )
    with contextlib.closing(comparison):
        comparison.run(size, lambda share: asked.report(words, share))
        found = comparison.found()
    if recorded is not None and not any(one.path == "old platform" for one in found):
        assert asked.answers is not None  # of which `recorded` is
        raise ConfigError(
            f"it answers none of the {size} samples of {asked.split}.",
            file=asked.answers,
            hint="Record the answers of this split's samples, or name the other one with --split.",
        )
    return Agreements(
        candidate_id=candidate.id,
        data=f"{size} samples of {asked.split} of {experiment.dataset.path.name}",
        paths=found,
        missing=missing,
    )


def _shapes(experiment: Experiment, candidate: Candidate) -> tuple[Shape, ...]:
    """Every batch and length that was compiled; lengths only of texts, since other samples have the size they have."""
    settings = candidate.compile
    lengths = settings.compiled_lengths() if experiment.dataset.preprocessor is not None else ()
    return tuple(Shape(batch=b, length=n) for b in settings.compiled_batches() for n in lengths or (None,))


def _pair(experiment: Experiment) -> Callable[[], Pair]:
    data, model = experiment.dataset, experiment.model
    if data.task != "tensors":
        classes: tuple[str, ...] = (scored_output(spec.name for spec in model.outputs),)
    elif data.metric is not None:
        classes = ()  # what outputs mean is the user's affair
    else:
        classes = tuple(use.name for use in uses_of(data, model) if use.meaning in ("logits", "probabilities"))
    padded = bool(data.interface.axes) and data.preprocessor is None
    extents = Extents(model, data.interface) if padded else None
    return functools.partial(Pair, classes, not_by_distance(data), extents)
