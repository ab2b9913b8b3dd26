"""What is asked for: phases over the whole model, each of stages that every block goes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Generation = Literal["v0", "v1"]
Type = Literal["W8A8", "W8A8_DYNAMIC", "W8A8_MIX", "W8A16", "FLOAT"]
TYPES: tuple[Type, ...] = ("W8A8", "W8A8_DYNAMIC", "W8A8_MIX", "W8A16", "FLOAT")
Observer = Literal["mean_extremes", "extremes", "mean_wide", "truncated_histogram", "automatic", "histogram"]
WeightMethod = Literal["minmax", "mse", "output_mse", "ssz"]
Group = Literal["norm-linear", "ov", "up-down"]
Data = Literal["calibration", "smoothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRecipe:
    """How one linear is quantized.

    Attributes:
        type: as the vendor's description names it; 'FLOAT' leaves the linear as it is.
        observer: of a static range. 'mean_extremes' (msmodelslim.md §4.4 act_method 1), 'truncated_histogram' (2),
            'automatic' (3: one of the two by the shape of the values), 'extremes', 'mean_wide' (the mean of extremes
            in float64) and 'histogram' (§4.7).
        symmetric: of the input.
        weight: 'minmax'; 'mse' has the least Σ (q·s − w)² of a row; 'output_mse' the same with every column weighted
            by the mean square of its input, so that what matters is the error of the output. These two are ours. 'ssz'
            refines the scale by least squares, in at most `refinements` steps (v1).
        ranged: while ranges are found, the input of a dynamic linear is quantized by one too, as the tool does with
            those of `mix_cfg` [found in its files].
        weight_symmetric, by_channel: of the weight; one scale for each output channel, or one for all.
    """

    type: Type
    observer: Observer = "mean_extremes"
    symmetric: bool = False
    weight: WeightMethod = "minmax"
    weight_symmetric: bool = True
    by_channel: bool = True
    ranged: bool = False
    refinements: int = 50

    @property
    def static(self) -> bool:
        """Whether a range of the input is part of the result."""
        return self.type in ("W8A8", "W8A8_MIX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Smooth:
    """Move outliers of activations into weights, by scales of channels that are folded where the graph allows it.

    Attributes:
        method: 'outlier_suppression' is m2, 'cbq' m5, 'awq' m3 and awq of v1; 'power' is s = a^alpha / w^beta (m1, m4,
            m6 with given exponents and v1's smooth_quant, iter_smooth, flex_smooth_quant); 'search' looks for the
            exponents (m6, flex_smooth_quant); 'flex_awq' is s = mean^alpha (flex_awq_ssz).
        alpha, beta: of 'power'; alpha also of 'flex_awq', which looks for it where `judged` is given.
        groups: what is smoothed; the order in which it is done is the generation's and the family's.
        shift: also move the middle of every channel's range to zero, into a bias of the norm and of the linears.
        skipped: full names of linears; a group that holds one is left alone. For v1 names of source modules.
        smallest: of a scale of 'power'.
        norm_bias: every norm gets a bias in float32, as v0's m1 to m5 write it; in v1 every norm that is smoothed, as
            smooth_quant writes it.
        signed_weights: of linear-to-linear groups the largest weight counts, not the largest |weight|, as the tool's
            iter_smooth has it [found in its files].
        head_reduction: how 'ov' joins the query heads that share a head of values: 'mean' of the scales, or 'max' of
            the statistics before.
        per_token: inputs of 'search' are quantized by token and symmetric rather than by tensor and asymmetric.
        symmetric_weights: how 'awq' quantizes weights while it compares; `steps` how many ratios it compares.
        judged: how 'flex_awq' quantizes while it compares.
        epsilon: of the norms in later passes, where the tool replaces them; None leaves the model's.
    """

    method: Literal["power", "outlier_suppression", "awq", "flex_awq", "cbq", "search"]
    generation: Generation
    groups: tuple[Group, ...]
    alpha: float = 0.5
    beta: float = 0.5
    smallest: float = 1e-5
    shift: bool = False
    skipped: frozenset[str] = frozenset()
    norm_bias: bool = False
    signed_weights: bool = False
    head_reduction: Literal["mean", "max"] = "mean"
    per_token: bool = False
    symmetric_weights: bool = True
    steps: int = 20
    judged: LinearRecipe | None = None
    epsilon: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotate:
    """Turn the residual stream by a random Hadamard matrix, and values by one of a head's size (msmodelslim.md §6).

    Attributes:
        seed: of the signs.
        block: sizes of one block; the rotation has as many equal ones along its diagonal as fit. None for one of all.
    """

    seed: int = 1234
    block: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Look at the float model as it is by now.

    Attributes:
        worst: so many linears with the most outlying inputs stay float (`disable_level`).
        cache: take the ranges of keys and values from what k_proj and v_proj give, before norms and rotation (v0's
            `use_kvcache_quant`, msmodelslim.md §4.8).
    """

    worst: int = 0
    cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantize:
    """Attributes:
    linears: full name → how. Linears that are not named stay as they are.
    """

    generation: Generation
    linears: Mapping[str, LinearRecipe]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeCache:
    """Ranges of keys after rotation, and of values, by channel (msmodelslim.md §4.8, v1)."""

    blocks: frozenset[int]


Stage = Smooth | Survey | Quantize | QuantizeCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Stages that share one pass over the blocks.

    Every stage that needs data runs a block's inputs through the block as it is by then; what the last of them gives is
    the next block's input. So in v1, whose stages are one phase, the statistics of a block's smoothing come out of
    quantized blocks before it; v0 smooths the whole model first (both found in the vendor's files).
    """

    stages: tuple[Stage, ...]
    data: Data = "calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmRecipe:
    """Attributes:
    generation: whose order of operations and whose file format is meant.
    type: what the whole checkpoint is called.
    rotate: done to the weights before all phases.
    """

    generation: Generation
    type: Type
    phases: tuple[Phase, ...]
    rotate: Rotate | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Of all phases, in their order."""
        return tuple(stage for phase in self.phases for stage in phase.stages)

    @property
    def norm_bias(self) -> bool:
        """Whether every norm is written with a bias, the last one too."""
        return any(isinstance(stage, Smooth) and stage.norm_bias and stage.generation == "v0" for stage in self.stages)

    @property
    def worst(self) -> int:
        """Linears that a survey of the whole model leaves float."""
        return max((stage.worst for stage in self.stages if isinstance(stage, Survey)), default=0)
