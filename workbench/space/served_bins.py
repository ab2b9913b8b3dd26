"""Padded lengths, once there is a dataset: numbers for the words of a space ('optimal 4'), and bins as a choice of the
service, where nothing is compiled for them and a candidate need not be one of them.

A space file offers them as `serving.sequence_bins`, and is valid with a service and without one. Where an experiment
has a service, the choices move to it when the experiment is read: the sampler never sees them, presets that differ in
nothing else are one, and every candidate's service chooses among them by simulation over one time surface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from workbench.space.dimensions import TARGET, bins_of, dimension_of, is_word, stand_in
from workbench.space.service_reader import MAX_SETTINGS
from workbench.space.space import BINS, Parameter, Preset, SearchSpace, ServedBins, assignment_of
from workbench.values.bins import IntArray
from workbench.values.candidate import Candidate
from workbench.values.dimension import ANY_LENGTH, Scalar
from workbench.values.errors import ConfigError
from workbench.values.installed_targets import installed_target
from workbench.values.service import ServiceChoices


def to_service(space: SearchSpace, own: tuple[int, ...]) -> SearchSpace:
    """The space without its parameter for bins, whose choices are the service's; as it is where it offers none, has no
    service, or offers them to a target that compiles shapes.

    Args:
        space: with numbers for words (`with_lengths`), or with words, only to be counted.
        own: the bins of the dataset's manifest, for candidates that the parameter does not apply to.

    Raises:
        ConfigError: another parameter depends on the bins, or there are too many settings.
    """
    parameter = next((p for p in space.parameters if p.name == BINS), None)
    if parameter is None or space.service is None:
        return space
    reached = [str(name) for name in parameter.when.get(TARGET, space.targets)]
    if any(installed_target(name).settings.compiles_shapes for name in reached):
        return space
    for other in space.parameters:
        if BINS in other.when:
            raise ConfigError(
                f"depends on {BINS}, which is a choice of the service here: each candidate's service chooses its own.",
                file=space.path,
                key=f"parameters.{other.name}.when",
                hint="Leave that condition out, or the key `service:` of the experiment.",
            )
    bins: dict[Scalar, tuple[int, ...]] = {
        c: stand_in(c) if is_word(c, ANY_LENGTH[BINS]) else tuple(map(int, str(c).split())) for c in parameter.choices
    }
    served = ServedBins(
        choices=bins,
        when=parameter.when,
        forbid=tuple(rule for rule in space.forbid if BINS in rule.values),
        otherwise=own,
        file=space,
    )
    now = space.service.today
    if now is not None:
        now = replace(now, sequence_bins=bins[parameter.choices[0] if space.today_bins is None else space.today_bins])
    service = replace(space.service, sequence_bins=tuple(bins.values()), today=now)
    if len(service.settings()) > MAX_SETTINGS:
        raise ConfigError(
            f"{len(service.settings())} settings of the service, bins among them, are more than {MAX_SETTINGS}.",
            file=space.path,
            key="service",
            hint=f"Take choices out there, or of {BINS}.",
        )
    presets: dict[tuple[tuple[str, Scalar], ...], Preset] = {}
    for preset in space.presets:  # the first of those that are one without their bins
        left = {name: value for name, value in preset.assignment.items() if name != BINS}
        presets.setdefault(tuple(left.items()), replace(preset, assignment=left))
    return replace(
        space,
        parameters=tuple(p for p in space.parameters if p is not parameter),
        forbid=tuple(rule for rule in space.forbid if BINS not in rule.values),
        presets=tuple(presets.values()),
        service=service,
        served_bins=served,
    )


def choices_of(space: SearchSpace, candidate: Candidate) -> ServiceChoices | None:
    """What a service of this candidate may be told; None where the space has no service.

    A candidate from elsewhere, which no assignment of the space makes, may choose any bins.
    """
    choices, served = space.service, space.served_bins
    if choices is None or served is None:
        return choices
    if candidate.compile.compiled_lengths():
        left: tuple[tuple[int, ...], ...] = ()
    else:
        assignment = assignment_of(space, candidate)
        left = choices.sequence_bins if assignment is None else served.left(assignment)
    now = choices.today
    if now is not None and now.sequence_bins not in left:
        now = replace(now, sequence_bins=left[0] if left else ())
    return replace(choices, sequence_bins=left, today=now)


def finest(space: SearchSpace, lengths: IntArray | None) -> tuple[int, ...] | None:
    """The bins with the least padding among those that a service may choose; of equals, the fewest. None where bins
    are no choice of the service."""
    served = space.served_bins
    if served is None or lengths is None:
        return None
    possible = [*served.choices.values(), *([served.otherwise] if served.when else [])]
    # tokens that all texts come to, padded; the last bin holds them all
    return min(possible, key=lambda bins: (int(np.array(bins)[np.searchsorted(bins, lengths)].sum()), len(bins)))


def words(space: SearchSpace) -> str:
    """What is the service's and no candidate's, in a sentence; empty where bins are no choice of the service."""
    if space.served_bins is None or space.service is None:
        return ""
    sets = ", ".join(" ".join(map(str, bins)) for bins in space.service.sequence_bins)
    return (
        f"the padded lengths of {BINS} are a choice of each candidate's service, since nothing is compiled for them: "
        f"{sets}; with batch, timeout and workers {len(space.service.settings())} settings, simulated on one surface "
        "of times; no candidate differs in them"
    )


# --- words ---------------------------------------------------------------------------------------------------------


def with_lengths(space: SearchSpace, lengths: Callable[[], IntArray | None], max_length: int | None) -> SearchSpace:
    """The space with numbers for every word: 'optimal 4' becomes '16 40 96 256'. Choices that become equal are one.

    Args:
        lengths: called where a word needs it: tokens of the dataset's texts; None when the data are not text.
        max_length: of the dataset; None when the data are not text.

    Raises:
        ConfigError: the data are not text, or a list of bins is too short for the dataset's texts.
    """
    numbers: dict[str, dict[Scalar, Scalar]] = {}
    for parameter in space.parameters:
        dimension = dimension_of(parameter.name, space.targets)
        if dimension is not None and dimension.lengths_in:
            words = [choice for choice in parameter.choices if is_word(choice, dimension)]
            if max_length is None:
                if words or parameter.name.startswith("serving."):
                    raise _unfit(
                        space, parameter, "the dataset's samples are not texts, which have lengths", "Leave it out."
                    )
                continue
            own = numbers[parameter.name] = {}
            for word in words:
                found = lengths()
                assert found is not None  # texts have lengths
                own[word] = " ".join(map(str, bins_of(word, dimension, found, max_length)))
            for choice in parameter.choices:
                if choice not in words and int(str(choice).split()[-1]) < max_length:
                    raise _unfit(
                        space,
                        parameter,
                        f"no bin of {str(choice)!r} holds a text of the dataset's max_length {max_length}",
                        f"Add {max_length}, lower max_length in the manifest, or write 'optimal 4'.",
                    )
    return replace(
        space,
        parameters=tuple(
            replace(p, choices=_renamed(numbers, p.name, p.choices), when=_all_renamed(numbers, p.when))
            for p in space.parameters
        ),
        forbid=tuple(replace(f, values=_all_renamed(numbers, f.values)) for f in space.forbid),
        presets=tuple(
            replace(p, assignment={n: _renamed(numbers, n, (value,))[0] for n, value in p.assignment.items()})
            for p in space.presets
        ),
        today_bins=None if space.today_bins is None else _renamed(numbers, BINS, (space.today_bins,))[0],
    )


def _renamed(
    numbers: Mapping[str, Mapping[Scalar, Scalar]], name: str, choices: tuple[Scalar, ...]
) -> tuple[Scalar, ...]:
    return tuple(dict.fromkeys(numbers.get(name, {}).get(choice, choice) for choice in choices))


def _all_renamed(
    numbers: Mapping[str, Mapping[Scalar, Scalar]], values: Mapping[str, tuple[Scalar, ...]]
) -> dict[str, tuple[Scalar, ...]]:
    return {name: _renamed(numbers, name, choices) for name, choices in values.items()}


def _unfit(space: SearchSpace, parameter: Parameter, problem: str, hint: str) -> ConfigError:
    return ConfigError(f"{problem}.", file=space.path, key=f"parameters.{parameter.name}", hint=hint)
