"""Dimension: every setting a search space may name, with what it means, when it means something, and the source.

The values that exist at all are here, for the settings that every target has; a target brings those of its own. Which
of them a sweep tries is the user's space file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TypeGuard, get_args

from workbench.values.bins import IntArray, optimal_bins
from workbench.values.candidate import (
    Algorithm,
    FloatUnit,
    Granularity,
    Operators,
    Scheme,
    SensitivityMetric,
    WeightAlgorithm,
)
from workbench.values.dimension import Dimension, Scalar
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.installed_targets import installed_target, target_names

TARGET = "target"
CFG = "quantization.cfg"
OFF = "off"

GENERAL: Mapping[str, Dimension] = {
    "precision.mode": Dimension(
        about="number format of what is not quantized; targets that have others than fp32 say which", values=("fp32",)
    ),
    "quantization.scheme": Dimension(
        about="none keeps float; dynamic computes activation scales at run time, one for a whole call, so that scores "
        "depend a little on what shares the batch; static takes them from calibration; cfg follows a "
        "configuration file",
        values=tuple(scheme for scheme in get_args(Scheme) if scheme != "recipe"),
    ),
    "quantization.algorithm": Dimension(
        about="how a clip range is derived from the observed histogram", values=get_args(Algorithm)
    ),
    "quantization.percentile": Dimension(about="share of activation values kept, in percent", kind=float),
    "quantization.activation_symmetric": Dimension(
        about="zero point fixed at 0 (true) or free (false)", values=(False, True), kind=bool
    ),
    "quantization.weight_granularity": Dimension(
        about="one weight scale per tensor, or one per output channel", values=get_args(Granularity)
    ),
    "quantization.weight_algorithm": Dimension(
        about="how a weight's scale is chosen; adaround learns the rounding too, and is slower",
        values=get_args(WeightAlgorithm),
    ),
    "quantization.attention_matmul": Dimension(
        about="quantize MatMuls of two activations too", values=(False, True), kind=bool
    ),
    "quantization.operators": Dimension(
        about="which layers become INT8: all of them; matmul (MatMul and Gemm alone, convolutions stay in float, as "
        "for vocoders); or conv",
        values=get_args(Operators),
    ),
    "quantization.balance": Dimension(
        about="migration strength of activation balancing (SmoothQuant, DMQ), 0 to 1; auto searches it per layer",
        kind=float,
        words=("auto",),
        may_be_off=True,
    ),
    "quantization.bias_correction": Dimension(
        about="take the mean error of rounding back out of the biases", values=(False, True), kind=bool
    ),
    "quantization.keep_float": Dimension(about="how many of the most sensitive units stay in float", kind=int),
    "quantization.keep_float_unit": Dimension(
        about="what keep_float counts: single layers, or groups such as one block's attention QKV",
        values=get_args(FloatUnit),
    ),
    "quantization.sensitivity": Dimension(
        about="the figure by which layers are ranked for keep_float", values=get_args(SensitivityMetric)
    ),
    CFG: Dimension(about="a configuration of the calibration (.cfg) or its JSON form, relative to the space file"),
    "serving.batch": Dimension(about="samples per call", kind=int),
}
"""Of every target; its own of the same name stand before them."""


@functools.cache
def dimensions_of(target: str) -> Mapping[str, Dimension]:
    """Every setting that a space may name for a target.

    Raises:
        ConfigError: there is no such target.
        ToolchainError: its package cannot be imported.
    """
    return {**GENERAL, **installed_target(target).dimensions}


def dimension_of(name: str, targets: Iterable[str]) -> Dimension | None:
    """What a setting means for the first of these targets that has it; None where none has."""
    return next((known[name] for known in map(dimensions_of, targets) if name in known), None)


def targets_with(name: str) -> tuple[str, ...]:
    """The installed targets that have a setting; one that cannot be loaded has none."""
    found = []
    for target in target_names():
        try:
            if name in dimensions_of(target):
                found.append(target)
        except (ConfigError, ToolchainError):
            continue  # named where it is used, and by the doctor
    return tuple(found)


# --- bins by word, such as 'optimal 4', to which only the lengths of a dataset's texts give numbers -------------------

MOST_BINS = 16
"""What a word may ask for: each is a queue of its own, and on targets with fixed shapes a file for each batch."""
_OPTIMAL = "optimal "
_STAND_IN = 100_003
"""A length that nobody writes down, so that candidates of different words and lists are told apart."""


def is_word(value: Scalar, dimension: Dimension | None) -> TypeGuard[str]:
    """Whether a choice stands for bins that a dataset's lengths decide: 'optimal 4'."""
    if dimension is None or not dimension.lengths_in or not isinstance(value, str):
        return False
    count = value.removeprefix(_OPTIMAL)
    return count != value and count.isascii() and count.isdecimal() and 1 <= int(count) <= MOST_BINS


def stand_in(word: str) -> tuple[int, ...]:
    """As many bins as a word asks for, before there is a dataset: for counting candidates, never for data."""
    return tuple(_STAND_IN * number for number in range(1, int(word.removeprefix(_OPTIMAL)) + 1))


def bins_of(word: str, dimension: Dimension, lengths: IntArray, max_length: int) -> tuple[int, ...]:
    """The bins a word stands for, given the tokens of a dataset's texts; the last is `max_length`."""
    return optimal_bins(lengths, int(word.removeprefix(_OPTIMAL)), max_length, multiple=dimension.lengths_in)
