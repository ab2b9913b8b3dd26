"""What INT8, precision, fusion, bins and batch are worth on a modelled card, with intervals. Run by hand.

    python -m benchmarks.device_gains [SOC]

Three encoders (of the two larger ones four layers, the others repeat them) and a residual net, compiled by the emulated
atc and MODELLED, not measured: a gain is the time of the first over that of the second, and errors of what both have
cancel. Behind it: what leaves these gains and times most open, each with the measurement on a card that settles it.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.bert import BERT_SMALL, Shape, bert, in_int8, tokens
from benchmarks.published_910b3 import compiled
from workbench.cann_emulator.om import ITEM_BYTES, OfflineModel, Tensor
from workbench.cann_emulator.timing import execution_costs
from workbench.targets.ascend.config_files import FUSION_GROUPS, fusion_switch
from workbench.values.modelled_times.device_data import load_device_data, timing_model
from workbench.values.modelled_times.figures import at_errors, interval
from workbench.values.modelled_times.statement import CallCosts

ENCODERS: Mapping[str, Shape] = {
    "BERT-Small": replace(BERT_SMALL, vocabulary=1000),
    "BERT-base, 4 layers": Shape(layers=4, width=768, heads=12, inner=3072, vocabulary=1000),
    "BERT-large, 4 layers": Shape(layers=4, width=1024, heads=16, inner=4096, vocabulary=1000),
}
CNN = "residual net, 224"
BATCH = 16
_FUSIONS_OFF = fusion_switch(FUSION_GROUPS, [])


def main(arguments: Sequence[str] | None = None) -> int:
    soc = (sys.argv[1:] if arguments is None else arguments or ["Ascend910B3"])[:1] or ["Ascend910B3"]
    device = load_device_data(soc[0], known=True)
    priced = at_errors(timing_model(device, "modelled"))
    unknowns = timing_model(device, "modelled").unknowns
    open_in_all: defaultdict[str, float] = defaultdict(float)
    print(f"{soc[0]}, MODELLED: 95 % of what the timing model's errors leave open\n")
    print(f"{'model':22} {'what':44} {'ms':>8}  gain")
    with tempfile.TemporaryDirectory() as folder:
        for name in (*ENCODERS, CNN):
            rows = calls_of(name, Path(folder), soc[0])
            for what, (before, after, per) in rows.items():
                ours, theirs = priced.call_ms([costs(after, device), costs(before, device)])
                gain = interval(theirs / ours * per)
                print(f"{name:22} {what:44} {ours[0]:8.3f}  {gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]")
                for figure in (ours, theirs / ours):
                    moved = np.abs(np.log(figure[1:] / figure[0])).reshape(-1, 2).max(axis=1)
                    for unknown, own in zip(unknowns, moved, strict=True):
                        open_in_all[unknown.name] += float(own**2)
    print(
        "\nten measurements that narrow these intervals most, by their share of what is open (variance of logarithms)"
    )
    whole = math.fsum(open_in_all.values())
    by_name = {unknown.name: unknown for unknown in unknowns}
    for name, share in sorted(open_in_all.items(), key=lambda item: -item[1])[:10]:
        print(f"{share / whole:6.1%}  {by_name[name].about}")
    return 0


def calls_of(name: str, folder: Path, soc: str) -> dict[str, tuple[OfflineModel, OfflineModel, float]]:
    """What is changed → (before, after, samples of a call of after over one of before)."""
    off = folder / "off.cfg"
    off.write_text(_FUSIONS_OFF, encoding="utf-8")
    sizes = (224, 112) if name == CNN else (512, 128)

    def of(size: int, *flags: str, batch: int = BATCH, int8: bool = False, mode: str = "force_fp16") -> OfflineModel:
        proto = residual_net() if name == CNN else bert(ENCODERS[name], length=size)
        if int8:
            proto = in_int8(proto, *_sample(name))
        rest = (3, size, size) if name == CNN else (size,)
        shape = ";".join(f"{i.name}:{','.join(map(str, (batch, *rest)))}" for i in proto.graph.input)
        return compiled(proto, folder, shape, soc, f"--precision_mode={mode}", *flags)

    half, smaller = (of(size) for size in sizes)
    found = {
        f"INT8 over FP16, size {sizes[0]}": (half, of(sizes[0], int8=True), 1.0),
        f"INT8 over FP16, size {sizes[1]}": (smaller, of(sizes[1], int8=True), 1.0),
        "FP16 over mixed": (of(sizes[0], mode="allow_mix_precision"), half, 1.0),
        "FP16 over FP32": (of(sizes[0], mode="must_keep_origin_dtype"), half, 1.0),
        "fusions over none": (of(sizes[0], f"--fusion_switch_file={off}"), half, 1.0),
        f"batch {BATCH} over 1, by sample": (of(sizes[0], batch=1), half, float(BATCH)),
    }
    return found if name == CNN else found | {f"a bin of {sizes[1]} over {sizes[0]}": (half, smaller, 1.0)}


def _sample(name: str) -> tuple[onnx.ModelProto, dict[str, npt.NDArray[np.generic]]]:
    if name == CNN:
        return residual_net(), {"image": np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)}
    return bert(ENCODERS[name], batch=1, length=64), tokens(ENCODERS[name], 1, 64)


def costs(model: OfflineModel, device: object) -> CallCosts:
    sizes = [[_bytes(tensor) for tensor in tensors] for tensors in (model.inputs, model.gears[0].outputs)]
    return execution_costs(model, 0, device, copied_in=sizes[0], copied_out=sizes[1])  # type: ignore[arg-type]


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]


def residual_net() -> onnx.ModelProto:
    """`image` [batch, 3, 224, 224] → `scores` [batch, 1000], with random weights: eight blocks of two convolutions."""
    random, weights, nodes = np.random.default_rng(0), [], []

    def add(kind: str, inputs: list[str], **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"t{len(nodes)}"], name=f"n{len(nodes)}", **attributes))
        return str(nodes[-1].output[0])

    def weight(*size: int) -> str:
        values = random.standard_normal(size, np.float32) / np.float32(math.sqrt(math.prod(size[1:])))
        weights.append(numpy_helper.from_array(values, f"w{len(weights)}"))
        return str(weights[-1].name)

    def conv(x: str, given: int, made: int, side: int, stride: int) -> str:
        pads = [side // 2] * 4
        return add(
            "Conv", [x, weight(made, given, side, side)], kernel_shape=[side] * 2, strides=[stride] * 2, pads=pads
        )

    x = add("Relu", [conv("image", 3, 64, 7, 2)])
    x = add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    given = 64
    for made in (64, 64, 128, 128, 256, 256, 512, 512):
        stride = 1 if made == given else 2
        inner = conv(add("Relu", [conv(x, given, made, 3, stride)]), made, made, 3, 1)
        x, given = add("Relu", [add("Add", [inner, x if made == given else conv(x, given, made, 1, stride)])]), made
    x = add("Flatten", [add("GlobalAveragePool", [x])])
    x = add("MatMul", [x, weight(512, 1000)])
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", 1000])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


if __name__ == "__main__":
    sys.exit(main())
