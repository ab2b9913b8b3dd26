"""A peer in an interpreter of its own: NNCF's INT8 quantization of an ONNX model, as its documentation advises.

    PYTHON nncf_quantize.py MODEL FEEDS.npz XML

PYTHON has nncf and openvino installed. FEEDS holds `<input>/<number>` arrays, one sample each. Writes XML and, beside
it, the weights; prints the versions as JSON. Imports nothing of the workbench.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict

sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # no usage events from a benchmark

import nncf  # noqa: E402  the line above must come first
import numpy as np  # noqa: E402
import openvino  # noqa: E402


def main(model: str, feeds: str, xml: str) -> None:
    samples: dict[int, dict[str, np.ndarray]] = defaultdict(dict)
    with np.load(feeds) as stored:
        for key in stored.files:
            name, _, number = key.rpartition("/")
            samples[int(number)][name] = stored[key]
    quantized = nncf.quantize(
        openvino.Core().read_model(model),
        nncf.Dataset([samples[number] for number in sorted(samples)]),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(samples),
    )
    openvino.save_model(quantized, xml, compress_to_fp16=False)
    print(json.dumps({"nncf": nncf.__version__, "openvino": openvino.get_version()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
