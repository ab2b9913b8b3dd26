"""How the emulator sees calibration data: sessions that were made with AMCT_SO.

AMCT_SO is a plain SessionOptions. The vendor's has a compiled operator library registered, whose IFMR, HFMG and
DMQBalancer kernels run within the model. The emulator has no compiled library. Instead, making an
`onnxruntime.InferenceSession` with this very object from a modified model

    1. runs that model without AMCT's nodes, which only look and change nothing, and
    2. hands every forward's feeds to `forwards.Forwards`, which does what the kernels do.

Every other session is made as before, so a modified model opened without AMCT_SO fails in ONNX Runtime's own words.
One method of one class is replaced, `InferenceSession.__init__`, when this module is first imported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no stubs

from workbench.cann_emulator.amct_onnx.forwards import Forwards
from workbench.cann_emulator.amct_onnx.modified import operators_of, without_operators

AMCT_SO = onnxruntime.SessionOptions()
"""The session options to open modified and fake-quant models with (amct.md §1.1)."""

_make_session = onnxruntime.InferenceSession.__init__


def _init(
    self: onnxruntime.InferenceSession,
    path_or_bytes: str | bytes | os.PathLike[str],
    sess_options: onnxruntime.SessionOptions | None = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    model = _modified(path_or_bytes) if sess_options is AMCT_SO else None
    if model is None:
        _make_session(self, path_or_bytes, sess_options, *args, **kwargs)
        return
    graph = without_operators(model)
    _make_session(self, graph.SerializeToString(), sess_options, *args, **kwargs)
    if isinstance(path_or_bytes, bytes):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "modified.onnx"
            file.write_bytes(path_or_bytes)
            forwards = Forwards(file, model, graph, rewritten=None)
    else:
        file = Path(os.path.realpath(path_or_bytes))
        forwards = Forwards(file, model, graph, rewritten=file)
    _watch(self, forwards)


def _modified(path_or_bytes: str | bytes | os.PathLike[str]) -> onnx.ModelProto | None:
    """The model where it is a modified one; whatever else it is, is ONNX Runtime's business."""
    try:
        if isinstance(path_or_bytes, bytes):
            model = onnx.load_model_from_string(path_or_bytes)
        else:
            model = onnx.load(path_or_bytes)
    except (OSError, DecodeError, onnx.checker.ValidationError):
        return None
    return model if operators_of(model) else None


def _watch(session: onnxruntime.InferenceSession, forwards: Forwards) -> None:
    """Let every way of running this one session tell `forwards` what was fed."""
    run: Callable[..., Sequence[Any]] = session.run

    def watched_run(output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        results = run(output_names, input_feed, run_options)
        forwards.add(input_feed)
        return results

    run_values: Callable[..., Sequence[Any]] = session.run_with_ort_values

    def watched_values(
        output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> Any:
        results = run_values(output_names, input_dict_ort_values, run_options)
        forwards.add({name: value.numpy() for name, value in input_dict_ort_values.items()})
        return results

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the amct_onnx emulator sees the data of run and run_with_ort_values only")

    session.run = watched_run
    session.run_with_ort_values = watched_values
    session.run_async = session.run_with_iobinding = refused


onnxruntime.InferenceSession.__init__ = _init
