"""What the operators of a modified model do while it runs: look at batch_num forwards, then write factors.

AMCT's IFMR keeps the activations of all batches and searches once, when its counter reaches batch_num; later forwards
are ignored (amct.md §1.7). Here the feeds are kept and the float graph runs again over them, by
`quantization.exact`, whose numbers are those of AMCT's record files. DMQBalancer writes after every forward, over what
the one before wrote.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto

from workbench.cann_emulator.amct_onnx import record_file
from workbench.cann_emulator.amct_onnx.files import write
from workbench.cann_emulator.amct_onnx.learned_rounding import learn
from workbench.cann_emulator.amct_onnx.log import say
from workbench.cann_emulator.amct_onnx.modified import (
    attributes_of,
    operators_of,
    request_of,
    served_keys,
)
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import constants, read_model
from workbench.quantization.activations import activations
from workbench.quantization.balance import dmq_factors, input_channel_maxima
from workbench.quantization.exact import activation_scales
from workbench.quantization.observe import Feeds
from workbench.quantization.scales import as_half
from workbench.values.errors import WorkbenchError

DUMP_INDEX = "index.json"
"""In a dump folder: tensor → its .npy files, in the order of the forwards; a layout of ours."""

_CHANNELS_FIRST = ("Conv", "ConvTranspose")


class Forwards:
    """The forwards of one session. A second session counts from 0 again (amct.md §12).

    Args:
        path: of the modified model; needed only now.
        graph: the modified model without AMCT's nodes.
        rewritten: where the modified model goes once its rounding was learned; None where it came as bytes.
    """

    def __init__(
        self, path: Path, modified: onnx.ModelProto, graph: onnx.ModelProto, *, rewritten: Path | None
    ) -> None:
        self._rewritten = rewritten
        self._modified = modified
        self._model = read_model(path)
        self._graph = graph
        operators = operators_of(modified)
        self._searches = [node for node in operators if node.op_type in ("IFMR", "HFMG")]
        self._balancers = [node for node in operators if node.op_type == "DMQBalancer"]
        self._dumps = [node for node in operators if node.op_type == "DUMP"]
        self._batch_num = max((attributes_of(node)["batch_num"] for node in self._searches), default=0)
        self._feeds: list[Feeds] = []
        self._done = 0
        self._lock = threading.Lock()

    def add(self, feeds: Mapping[str, Any]) -> None:
        """Take one forward's feeds.

        Raises:
            RuntimeError: the factors cannot be found or written: NaN in an activation, a changed record file.
        """
        with self._lock:
            batch = {name: np.array(values) for name, values in feeds.items()}
            try:
                if self._balancers:
                    self._balance(batch)
                if self._done < self._batch_num:
                    self._feeds.append(batch)
                    self._done += 1
                    if self._done == self._batch_num:
                        self._calibrate()
            except (WorkbenchError, ValueError, OSError) as error:
                raise RuntimeError(f"calibration failed: {error}") from error

    def _calibrate(self) -> None:
        feeds, self._feeds = self._feeds, []
        wanted = {request_of(node): node for node in self._searches}
        threads = len(os.sched_getaffinity(0))
        found = activation_scales(self._model, self._graph, lambda: feeds, list(wanted), threads, None)
        files: dict[Path, str] = {}
        for request, node in wanted.items():
            settings = attributes_of(node)
            file = Path(settings["record_file_path"])
            forced = settings["fakequant_precision_mode"] == "FORCE_FP16_QUANT"
            scale = found[request]
            if forced:
                scale = replace(scale, scale=as_half(scale.scale))
            text = files[file] if file in files else file.read_text(encoding="utf-8")
            for key in served_keys(node):
                text = record_file.with_activation(text, key, scale, force_fp16=forced)
            files[file] = text
        for file, text in files.items():
            write(file, text)
        self._dump(feeds)
        learn(self._modified, feeds, self._rewritten)
        say(f"Do layer calibration success: {len(wanted)} activations over {self._batch_num} batches.")

    def _dump(self, feeds: Sequence[Feeds]) -> None:
        folders: dict[str, list[str]] = {}
        for node in self._dumps:
            folders.setdefault(attributes_of(node)["dump_dir"], []).append(node.input[0])
        for folder, tensors in folders.items():
            files: dict[str, list[str]] = {tensor: [] for tensor in tensors}
            for forward, run in enumerate(activations(self._model, self._graph, tensors, feeds, threads=1, whole=True)):
                for place, tensor in enumerate(tensors):
                    files[tensor].append(f"{place}_{forward}.npy")
                    np.save(Path(folder) / files[tensor][-1], run.values[tensor], allow_pickle=False)
            write(Path(folder) / DUMP_INDEX, json.dumps(files))

    def _balance(self, feeds: Feeds) -> None:
        layers = {layer.name: layer for layer in quantizable_layers(self._graph)}
        by_layer = {attributes_of(node)["object_layer"]: node for node in self._balancers}
        maxima = self._maxima(feeds, {name: layers[name].op_type for name in by_layer}, by_layer)
        known = constants(self._graph)
        factors: dict[Path, dict[str, tuple[float, ...]]] = {}
        for name, node in by_layer.items():
            settings = attributes_of(node)
            weights = input_channel_maxima(onnx.numpy_helper.to_array(known[node.input[1]]), layers[name])
            values = dmq_factors(maxima[name], weights, settings["migration_strength"])
            factors.setdefault(Path(settings["record_file_path"]), {})[name] = tuple(values.tolist())
        for file, found in factors.items():
            write(file, record_file.balance_records(found))

    def _maxima(
        self, feeds: Feeds, op_types: Mapping[str, str], nodes: Mapping[str, NodeProto]
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Layer → largest |x| per input channel."""
        found: dict[str, npt.NDArray[np.float32]] = {}
        tensors = list(dict.fromkeys(node.input[0] for node in nodes.values()))
        for run in activations(self._model, self._graph, tensors, [feeds], threads=1):
            for name, node in nodes.items():
                values = run.values[node.input[0]]
                axis = (1 if op_types[name] in _CHANNELS_FIRST else -1) % values.ndim
                largest = np.abs(values).max(axis=tuple(a for a in range(values.ndim) if a != axis))
                found[name] = np.maximum(found.get(name, largest), largest)
        return found
