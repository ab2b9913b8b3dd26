"""AMCT as a calibrator: whether it is asked about a candidate, and its record in the store's form.

quantization.calibrator   amct       AMCT, or the candidate fails with the reason
                          workbench  the native engine
                          (not said) AMCT where it is installed and knows the recipe, else the native engine
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import load_graph
from workbench.quantization.amct.cfg import (
    AdaQuantize,
    AmctConfig,
    ArqQuantize,
    CalibrationConfig,
    DmqBalancer,
    HfmgQuantize,
    IfmrQuantize,
    write_cfg,
)
from workbench.quantization.amct.config import CHANNEL_WISE_TYPES, learns_rounding, unsupported
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Feeds
from workbench.quantization.recipe import wants
from workbench.quantization.record import write_record
from workbench.targets.ascend.amct.amct import calibrate_with_amct, simulation_difference
from workbench.targets.ascend.amct.process import AmctInstallation
from workbench.values.candidate import Candidate, Quantization
from workbench.values.documents.canonical import encode
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

_COMPARED_BATCHES = 2
_LARGEST_DIFFERENCE = 0.05
"""As a share of the largest output. Equal arithmetic differs by roundings of the float operators between the INT8 ones
(below 1e-5 where we compared); more than this is another model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctCalibrator:
    """See `workbench.targets.calibrator.Calibrator`.

    Attributes:
        installation: None where AMCT is not installed.
    """

    installation: AmctInstallation | None

    def configuration(
        self, candidate: Candidate, model: Model, kept: Callable[[], Sequence[str]], batches: int
    ) -> str | None:
        q = candidate.quantization
        if q.calibrator == "workbench":
            return None
        if self.installation is None:
            if q.calibrator == "amct":
                raise CalibrationError(
                    "quantization.calibrator is 'amct', and no interpreter with amct_onnx is known. Set "
                    "WORKBENCH_AMCT_PYTHON to the one it is installed in, or leave the setting out."
                )
            return None
        layers = quantizable_layers(normalized(load_graph(model)))
        try:
            return quantization_to_amct_cfg(q, layers, kept(), batch_num=batches)
        except CalibrationError:
            if q.calibrator == "amct":
                raise
            return None

    def identity(self) -> Mapping[str, object]:
        assert self.installation is not None  # who gave a configuration had it
        found: Mapping[str, object] = encode(replace(self.installation, variables={}))
        return found

    def write_record(self, model: Model, configuration: str, batches: Callable[[], Iterator[Feeds]], to: Path) -> None:
        """Beside `record.json` AMCT's own files but its models, once its simulation and our arithmetic on its deploy
        model agree."""
        assert self.installation is not None  # who gave a configuration had it
        result = calibrate_with_amct(model, configuration, batches(), to / "amct", installation=self.installation)
        compared = islice(batches(), _COMPARED_BATCHES)
        difference = simulation_difference(result, compared, installation=self.installation)
        if not difference <= _LARGEST_DIFFERENCE:
            raise CalibrationError(
                f"AMCT's simulation and the integers of its deploy model differ by {difference:.1%} of the largest "
                f"output over {_COMPARED_BATCHES} batches, so the record cannot be trusted. Compare the two with "
                "`workbench compare`.",
                log_path=result.log,
            )
        for file in (result.deploy_model, result.fake_quant_model):  # the record says all that lowering needs
            file.unlink()
        write_record(result.record, to / "record.json")


# --- a search point as AMCT's simplified configuration, or why AMCT cannot do it --------------------------------------


_PERCENTILE_SEARCH = (1.0, 1.01, 0.01)
"""Start, end and step of IFMR's search around a percentile: it has no setting for no search at all."""


def quantization_to_amct_cfg(
    quantization: Quantization, layers: Sequence[Layer], kept_float: Sequence[str] = (), *, batch_num: int = 1
) -> str:
    """The text of the .cfg that says what a calibrated search point says.

    A scheme 'cfg' is the user's own text, unchanged. Otherwise:

    - 'ifmr' and 'hfmg' are AMCT's own. 'percentile' is IFMR with both percentiles, its search narrowed to one per
      cent; AMCT counts each side over all values, where the workbench counts |x| over those that are not zero.
    - Weights: 'arq', and 'adaround' as ada_quantize (its scale is AMCT's own).
    - A strength of balancing from 0.2 to 0.8 is DMQ.
    - Layers in `kept_float`, those of other `operators`, products of two activations without `attention_matmul`, and
      AveragePool are skipped.

    Args:
        layers: of the normalized model.
        batch_num: forward passes that calibrate.

    Raises:
        CalibrationError: AMCT has no such algorithm or setting; the workbench's own engine has.
    """
    if quantization.scheme == "cfg":
        assert quantization.cfg is not None
        return quantization.cfg
    if quantization.scheme != "static":
        raise CalibrationError(f"AMCT does not calibrate a {quantization.scheme!r} model.")
    refused = unsupported(layers)
    kept = [layer.name for layer in layers if layer.name in kept_float or not wants(quantization, layer)]
    chosen = [layer for layer in layers if layer.name not in {*kept, *refused}]
    asymmetric = not quantization.activation_symmetric
    config = AmctConfig(
        batch_num=batch_num,
        activation_offset=asymmetric,
        skip_layers=tuple(name for name in kept if name not in refused),
        common_config=CalibrationConfig(
            weights=_weights(quantization, chosen),
            activations=_activations(quantization),
            dmq_balancer=_balancer(quantization),
        ),
    )
    if quantization.bias_correction:
        raise _cannot("correct biases", "bias_correction to false")
    # the default, and not in the schema that the manual prints for ONNX (amct.md §2.2): a parser may not know it
    lines = [line for line in write_cfg(config).splitlines() if line.strip() != "dst_type: INT8"]
    return "\n".join(lines) + "\n"


def _activations(quantization: Quantization) -> IfmrQuantize | HfmgQuantize:
    asymmetric = not quantization.activation_symmetric
    if quantization.algorithm == "ifmr":
        return IfmrQuantize(asymmetric=asymmetric)
    if quantization.algorithm == "hfmg":
        return HfmgQuantize(asymmetric=asymmetric)
    if quantization.algorithm == "percentile" and quantization.percentile is not None:
        share = round(quantization.percentile / 100, 9)
        start, end, step = _PERCENTILE_SEARCH
        return IfmrQuantize(
            search_range_start=start,
            search_range_end=end,
            search_step=step,
            max_percentile=share,
            min_percentile=share,
            asymmetric=asymmetric,
        )
    raise _cannot(f"find ranges by {quantization.algorithm!r}", "algorithm to ifmr, hfmg or percentile")


def _weights(quantization: Quantization, layers: Sequence[Layer]) -> ArqQuantize | AdaQuantize:
    weighted = [layer for layer in layers if layer.weight is not None]
    convolutions = [layer for layer in weighted if layer.op_type in CHANNEL_WISE_TYPES]
    products = [layer for layer in weighted if layer.op_type not in CHANNEL_WISE_TYPES]
    by_channel = quantization.weight_granularity == "channel"
    if by_channel and products:
        raise _cannot(
            f"give {products[0].op_type} layers such as {products[0].name!r} a scale per channel (amct.md §0 fact 4)",
            "weight_granularity to tensor",
        )
    # None leaves convolutions their default, per channel; asked for in common_config it would reach every layer
    channel_wise = False if convolutions and not by_channel else None
    if quantization.weight_algorithm == "arq":
        return ArqQuantize(channel_wise=channel_wise)
    if quantization.weight_algorithm == "adaround":
        if other := [layer.name for layer in weighted if not learns_rounding(layer)]:
            raise _cannot(f"learn the rounding of {other[0]!r}", "weight_algorithm to arq")
        return AdaQuantize(channel_wise=channel_wise)
    raise _cannot(f"find weight scales by {quantization.weight_algorithm!r}", "weight_algorithm to arq or adaround")


def _balancer(quantization: Quantization) -> DmqBalancer | None:
    strength = quantization.balance
    if strength is None:
        return None
    if strength == "auto":
        raise _cannot("search a strength of balancing for each layer", "balance to a number from 0.2 to 0.8")
    if not 0.2 <= strength <= 0.8:
        raise _cannot(f"balance with strength {strength:g}", "balance to a number from 0.2 to 0.8")
    return DmqBalancer(migration_strength=strength)


def _cannot(what: str, remedy: str) -> CalibrationError:
    return CalibrationError(f"AMCT cannot {what}. Set {remedy}, or let the workbench calibrate.")
