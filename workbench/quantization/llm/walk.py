"""One block on its way through the stages of a recipe.

Each phase has a stream of hidden states of its own. Its pass over block b needs its pass over the blocks before and
what earlier phases made of b, and no more; so one block is in memory, and beside it the streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from workbench.quantization.llm.affine import (
    SOURCES,
    Affine,
    QuantizedLinear,
    affine,
    extremes,
    fake_quantized,
    quantized_linear,
)
from workbench.quantization.llm.config import LlmConfig
from workbench.quantization.llm.fixed_order import causal_attention, linear_product
from workbench.quantization.llm.forward import Cache, Linear, run_block
from workbench.quantization.llm.observers import Range, Ranging, Spread, observing
from workbench.quantization.llm.recipe import (
    LinearRecipe,
    Phase,
    Quantize,
    QuantizeCache,
    Smooth,
    Stage,
    Survey,
)
from workbench.quantization.llm.smoothing.apply import bias_norms, smooth_block, wanted_inputs
from workbench.quantization.llm.smoothing.groups import ChannelStatistics
from workbench.values.errors import ConfigError

Stream = list[torch.Tensor]
CACHED = {"self_attn.k_proj": "key", "self_attn.v_proj": "value"}


@dataclass(slots=True, kw_only=True)
class WorkingBlock:
    """A block on its way through the stages.

    Attributes:
        tensors: floats by names relative to the block; a quantized linear's weight stays until all stages are through.
        cache: 'key' and 'value' → ranges by channel.
        epsilon: of the norms before linears from here on, where a stage replaced them.
        spreads: source → how far its largest value stands out, after a survey.
    """

    config: LlmConfig
    index: int
    prefix: str
    tensors: dict[str, torch.Tensor]
    linears: dict[str, QuantizedLinear] = field(default_factory=dict)
    cache: dict[str, Affine] = field(default_factory=dict)
    epsilon: float | None = None
    spreads: dict[str, float] = field(default_factory=dict)

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """What the linear of that name computes by now."""
        quantized = self.linears.get(name)
        if quantized is not None:
            return quantized.wide(x) if quantized.generation == "v1" else quantized(x)
        return float_product(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))


def float_product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x · weightᵀ + bias in the dtype of x, which is wider than the weight's behind a stage that widened it."""
    return linear_product(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def needs_data(stage: Stage) -> bool:
    """Whether samples have to run for a stage."""
    if isinstance(stage, Quantize):
        return any(each.static or each.weight == "output_mse" for each in stage.linears.values())
    return isinstance(stage, Smooth | Survey | QuantizeCache)


def run_through(
    block: WorkingBlock, stream: Stream, linear: Linear | None = None, cache: Cache | None = None
) -> Stream:
    """A stream behind the block as it is by now, each sample replaced as soon as it is through.

    Args:
        cache: themselves when None: in the tool no stage sees a quantized cache, whatever came before it.
    """
    for number, hidden in enumerate(stream):
        stream[number] = run_block(
            block.config,
            block.tensors,
            hidden,
            linear=linear or block.linear,
            cache=cache,
            epsilon=block.epsilon,
            attention=causal_attention,
        )
    return stream


def take_phase(block: WorkingBlock, phase: Phase, stream: Stream) -> None:
    """The stages of one phase on one block: for each of them the stream goes through, then the block is what the stage
    makes of it; `stream` is changed to what is behind the last."""
    running = [number for number, stage in enumerate(phase.stages) if needs_data(stage)]
    for number, stage in enumerate(phase.stages):
        ours = stream if running and number == running[-1] else list(stream)
        if isinstance(stage, Smooth):
            _smooth(block, stage, ours)
        elif isinstance(stage, Survey):
            _survey(block, stage, ours)
        elif isinstance(stage, Quantize):
            _quantize(block, stage, ours)
        else:
            _quantize_cache(block, stage, ours)


def first_readers(linear: Linear, see: Callable[[str, torch.Tensor], None]) -> Linear:
    """`linear`, with `see(source, x)` called once for each tensor that linears read."""
    readers = {source: name for name, source in reversed(SOURCES.items())}

    def watched(name: str, x: torch.Tensor) -> torch.Tensor:
        if readers[SOURCES[name]] == name:
            see(SOURCES[name], x)
        return linear(name, x)

    return watched


def _smooth(block: WorkingBlock, stage: Smooth, stream: Stream) -> None:
    wanted = wanted_inputs(stage, block.config.family, block.prefix)
    seen = {source: ChannelStatistics(keep=keep) for source, keep in wanted.items()}

    def see(source: str, x: torch.Tensor) -> None:
        if source in seen:
            seen[source].update(x)

    run_through(block, stream, first_readers(block.linear, see))
    smooth_block(stage, block.config, block.prefix, block.tensors, seen)
    if stage.epsilon is not None:
        block.epsilon = stage.epsilon
    if stage.norm_bias and stage.generation == "v0":
        bias_norms(block.tensors)


def _survey(block: WorkingBlock, stage: Survey, stream: Stream) -> None:
    spreads = {source: Spread() for source in dict.fromkeys(SOURCES.values())}
    outputs: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # least and largest of every channel

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        out = block.linear(name, x)
        if stage.cache and name in CACHED:
            low, high = torch.aminmax(out.reshape(-1, out.shape[-1]), dim=0)
            before = outputs.get(CACHED[name], (low, high))
            outputs[CACHED[name]] = torch.minimum(low, before[0]), torch.maximum(high, before[1])
        return out

    run_through(block, stream, first_readers(linear, lambda source, x: spreads[source].update(x)))
    block.spreads = {source: spread.value for source, spread in spreads.items()}
    if stage.cache:
        block.cache = {what: affine(*seen, symmetric=True, generation="v0") for what, seen in outputs.items()}


def _quantize_cache(block: WorkingBlock, stage: QuantizeCache, stream: Stream) -> None:
    if block.index not in stage.blocks:
        run_through(block, stream)
        return
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def cache(what: str, x: torch.Tensor) -> torch.Tensor:
        seen[what] = torch.aminmax(x.transpose(1, 2).reshape(-1, x.shape[1] * x.shape[3]), dim=0)  # of the last sample
        return x

    run_through(block, stream, cache=cache)
    block.cache = {what: affine(*found, symmetric=True, generation="v1") for what, found in seen.items()}


def _quantize(block: WorkingBlock, stage: Quantize, stream: Stream) -> None:
    """Weights first; then every sample renews the ranges and is quantized by them at once (msmodelslim.md §4.4).

    Linears with the same input share one observer, and what it finds in the sample that is on its way.
    """
    asked = {name: stage.linears.get(f"{block.prefix}.{name}") for name in SOURCES}
    recipes = {name: recipe for name, recipe in asked.items() if recipe is not None and recipe.type != "FLOAT"}
    squares, generation = _mean_squares(block, recipes, stream), stage.generation
    for name, recipe in recipes.items():
        weight, bias = block.tensors[f"{name}.weight"], block.tensors.get(f"{name}.bias")
        # the tool quantizes a static linear's weight when its first sample comes, in the dtype of that
        errors = stream[0].dtype if recipe.static and stream else torch.float32
        block.linears[name] = quantized_linear(
            weight, bias, recipe, generation, mean_square=squares.get(SOURCES[name]), errors=errors
        )
    if not needs_data(stage):
        return
    keys = {name: (SOURCES[name], recipe.observer, recipe.symmetric) for name, recipe in recipes.items()}
    observers: dict[tuple[str, str, bool], Ranging] = {}
    found: dict[tuple[str, str, bool], tuple[Affine, Range]] = {}

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        recipe = recipes.get(name)
        if recipe is None or not (recipe.static or recipe.ranged):
            return block.linear(name, x)
        if (key := keys[name]) not in found:
            if key not in observers:
                observers[key] = observing(recipe.observer, block.spreads.get(SOURCES[name]))
            low, high = observers[key].update(x)
            by = affine(low, high, symmetric=recipe.symmetric, generation=generation)
            if x.dtype == torch.bfloat16 and generation == "v0":
                # a histogram's range is float32, which float16 models and v1 keep (found in the tool's files)
                by = Affine(scale=by.scale.to(x.dtype), offset=by.offset.to(x.dtype))
            found[key] = by, (low.view(()), high.view(()))
        by, bounds = found[key]
        if generation == "v1" and recipe.type == "W8A8_MIX":
            # in calibration the tool's dynamic input has one symmetric range for the sample (msmodelslim.md §9)
            by = affine(*extremes(x), symmetric=True, generation="v1")
        given = fake_quantized(x, by)
        if recipe.observer == "histogram":  # the tool cuts what rounding carries beyond the range
            given = given.clamp(*bounds)
        return float_product(given, block.linears[name].meant, block.linears[name].bias)

    for number, hidden in enumerate(stream):
        found.clear()
        stream[number] = run_through(block, [hidden], linear)[0]
    for name, recipe in recipes.items():
        if recipe.static:
            by, _ = found[keys[name]]
            if not bool(torch.isfinite(by.scale).all()):
                raise ConfigError(
                    f"{block.prefix}.{name} sees values beyond {block.config.dtype} on the calibration texts.",
                    hint="Quantize a bfloat16 copy of the model, or leave smoothing out.",
                )
            block.linears[name] = replace(block.linears[name], input=by)


def _mean_squares(block: WorkingBlock, asked: dict[str, LinearRecipe], stream: Stream) -> dict[str, torch.Tensor]:
    """Source → mean square of every channel of the float input, where a weight's search asks for it."""
    wanted = {SOURCES[name] for name, recipe in asked.items() if recipe.weight == "output_mse"}
    if not wanted:
        return {}
    sums: dict[str, torch.Tensor] = {}

    def see(source: str, x: torch.Tensor) -> None:
        if source in wanted:
            added = x.reshape(-1, x.shape[-1]).to(torch.float64).pow(2).sum(0)
            sums[source] = sums[source] + added if source in sums else added

    run_through(block, list(stream), first_readers(block.linear, see))
    tokens = sum(hidden.shape[0] * hidden.shape[1] for hidden in stream)
    return {source: (total / tokens).to(torch.float32) for source, total in sums.items()}
