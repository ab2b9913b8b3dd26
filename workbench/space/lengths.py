"""Numbers for the words of a space: the dataset's lengths decide what 'optimal 4' means (`bin_words`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from workbench.space.dimensions import dimension_of
from workbench.space.space import BINS, Parameter, SearchSpace
from workbench.space.words import bins_of, is_word
from workbench.values.bins import IntArray
from workbench.values.dimension import Dimension, Scalar
from workbench.values.errors import ConfigError


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
            numbers[parameter.name] = {word: _numbers(word, dimension, lengths(), max_length) for word in words}
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


def _numbers(word: str, dimension: Dimension, lengths: IntArray | None, max_length: int) -> str:
    assert lengths is not None  # texts have lengths
    return " ".join(map(str, bins_of(word, dimension, lengths, max_length)))


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
