"""Small models on disk and the vendor's flow of calls on them."""

from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from tests.quantization.golden import cnn, data, mlp
from tests.targets.encoder import ids, tiny_encoder
from workbench.cann_emulator import amct_onnx as amct

Feeds = dict[str, Any]


def write(proto: onnx.ModelProto, folder: Path) -> str:
    onnx.save(proto, folder / "float.onnx")
    return str(folder / "float.onnx")


def mlp_file(folder: Path) -> str:
    return write(mlp(), folder)


def mlp_feeds(count: int = 2) -> list[Feeds]:
    return [{"x": data((16, 8), batch)} for batch in range(count)]


def encoder_file(folder: Path) -> str:
    return write(tiny_encoder(), folder)


def encoder_feeds(count: int = 2) -> list[Feeds]:
    return [ids(3, 6, seed) for seed in range(count)]


def cnn_file(folder: Path) -> str:
    return write(cnn(), folder)


def run(file: str | Path, feeds: list[Feeds], options: Any = None) -> list[list[Any]]:
    session = onnxruntime.InferenceSession(str(file), options)
    return [session.run(None, each) for each in feeds]


def quantized(folder: Path, model: str, feeds: list[Feeds], *, cfg: str | None = None, save: bool = True) -> Path:
    """config.json, record.txt, modified.onnx and net_*_model.onnx in a folder."""
    settings: dict[str, Any] = {"batch_num": len(feeds)}
    if cfg is not None:
        (folder / "quant.cfg").write_text(f"batch_num: {len(feeds)}\n{cfg}")
        settings = {"config_defination": str(folder / "quant.cfg")}
    config, record, modified = (str(folder / name) for name in ("config.json", "record.txt", "modified.onnx"))
    amct.create_quant_config(config, model, **settings)
    if cfg is not None and "dmq_balancer" in cfg:
        amct.quantize_preprocess(config, record, model, str(folder / "mod0.onnx"))
        run(folder / "mod0.onnx", feeds[:1], amct.AMCT_SO)
    amct.quantize_model(config, model, modified, record)
    if save:
        run(modified, feeds, amct.AMCT_SO)
        amct.save_model(modified, record, str(folder / "net"))
    return folder
