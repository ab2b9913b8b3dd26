"""Runs amct_onnx in the interpreter where it is installed. Started by its path: `python child.py FOLDER`.

That interpreter is an old one with old wheels (amct.md §1.6: Python 3.7 to 3.9, onnx 1.8 to 1.14), so this file keeps
to Python 3.7 and imports nothing of the workbench. Everything passes through FOLDER:

    request.json, model.onnx, feeds/*.npz (arrays only, no pickle)  ─►  stage, answer.json, files
    answer.json   {"ok": true, ...} or {"ok": false, "error": ..., "traceback": ...}; renamed into place when complete
    stage         what is being done; the last one where the process dies
"""

import sys

# This folder holds modules named like the vendor's; the old interpreter has no option -P to leave it out.
_HERE = __file__.rpartition("/")[0]
sys.path[:] = [place for place in sys.path if place != _HERE]

import importlib  # noqa: E402  # after the search path
import json  # noqa: E402  # the same
import traceback  # noqa: E402  # the same
from pathlib import Path  # noqa: E402  # the same
from typing import Any, Dict, Iterator, List  # noqa: E402, UP035  # Python 3.7 has no dict[...] at run time

Request = Dict[str, Any]  # noqa: UP006  # Python 3.7


def main(folder: Path) -> None:
    request: Request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    try:
        say(folder, "import")
        versions = installed()
        answer = calibrate(folder, request) if "feeds" in request else {}  # without them the versions alone
        answer.update(ok=True, versions=versions)
    except Exception as error:  # whatever it is, the workbench gets its words
        traceback.print_exc()
        answer = {
            "ok": False,
            "error": f"{type(error).__name__}: {error}",
            "kind": type(error).__name__,
            "traceback": traceback.format_exc(),
        }
    draft = folder / "answer.json.draft"
    draft.write_text(json.dumps(answer), encoding="utf-8")
    draft.replace(folder / "answer.json")


def say(folder: Path, stage: str) -> None:
    (folder / "stage").write_text(stage, encoding="utf-8")
    print("---- " + stage, flush=True)


def amct_onnx() -> Any:
    return importlib.import_module("amct_onnx")


def installed() -> Dict[str, str]:  # noqa: UP006  # Python 3.7
    """Versions of what takes part. Importing amct_onnx is where a broken installation shows."""
    import numpy
    import onnx
    import onnxruntime

    amct = amct_onnx()
    if getattr(amct, "AMCT_SO", None) is None:
        raise ImportError("amct_onnx has no AMCT_SO: its operator library amct_onnx_op is not built")
    found = {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "amct_onnx": amct_version(amct),
        "numpy": numpy.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    # who made the module may say so; the vendor's does not
    if isinstance(getattr(amct, "EMULATOR", None), str):
        found["emulator"] = amct.EMULATOR
    return found


def amct_version(module: Any) -> str:
    if isinstance(getattr(module, "__version__", None), str):
        return str(module.__version__)
    try:
        return str(importlib.import_module("importlib.metadata").version("amct_onnx"))
    except ImportError:  # Python 3.7, or a copy that no wheel installed
        return "unknown"


# --- actions -------------------------------------------------------------------------------------------------------


def calibrate(folder: Path, request: Request) -> Request:
    """create_quant_config, quantize_preprocess, quantize_model, forwards, save_model (amct.md §1.1)."""
    amct = amct_onnx()
    config, record, modified = (str(folder / name) for name in ("config.json", "record.txt", "modified.onnx"))
    if request.get("config_defination"):
        say(folder, "create_quant_config")
        given = str(folder / request["config_defination"])
        amct.create_quant_config(config_file=config, model_file=str(folder / "model.onnx"), config_defination=given)
    settings = json.loads(Path(config).read_text(encoding="utf-8"))
    if balances(settings):
        say(folder, "quantize_preprocess")
        preprocessed = str(folder / "preprocessed.onnx")
        amct.quantize_preprocess(config, record, str(folder / "model.onnx"), preprocessed)
        forward(preprocessed, folder, request["feeds"], 1)  # one only, says the manual
    say(folder, "quantize_model")
    amct.quantize_model(config, str(folder / "model.onnx"), modified, record)
    say(folder, "calibration")
    forward(modified, folder, request["feeds"], settings["batch_num"])
    say(folder, "save_model")
    amct.save_model(modified, record, str(folder / "result" / "model"))
    simulation = folder / "result" / "model_fake_quant_model.onnx"  # without it the record is refused
    names = simulate(simulation, folder, request["compared"]) if simulation.is_file() else []
    return {"forwards": settings["batch_num"], "outputs": names}


def simulate(file: Path, folder: Path, compared: Request) -> List[str]:  # noqa: UP006  # Python 3.7
    """Run the fake-quant model over batches; the names of what it gives, which lies in `outputs`."""
    import numpy

    say(folder, "simulation")
    (folder / "outputs").mkdir()
    # unfused, so that what is compared is what the file says: ORT folds a Mul into the weights of a Conv before it
    model = session(str(file), optimized=False)
    names = [value.name for value in model.get_outputs()]
    for index, feeds in enumerate(batches(folder, compared)):
        values = model.run(names, declared(model, feeds))
        numpy.savez(str(folder / "outputs" / f"{index:06d}.npz"), *values)
    return names


# --- pieces --------------------------------------------------------------------------------------------------------


def balances(settings: Request) -> bool:
    """Whether a layer asks for DMQ, which needs the preprocess model."""
    return any(
        isinstance(layer, dict) and layer.get("quant_enable", True) and "dmq_balancer_param" in layer
        for layer in settings.values()
    )


def session(model_file: str, optimized: bool = True) -> Any:
    """Modified and fake-quant models need AMCT_SO (amct.md §1.1)."""
    import onnxruntime

    options = amct_onnx().AMCT_SO
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model_file, options, providers=["CPUExecutionProvider"])


def forward(model_file: str, folder: Path, given: Request, count: int) -> None:
    """`count` forwards in one session: a second one would count from 0 (amct.md §12)."""
    model = session(model_file)
    done = 0
    for feeds in batches(folder, given):
        if done == count:
            break
        model.run(None, declared(model, feeds))
        done += 1
    if done < count:
        raise ValueError(f"{done} batches for {count} forwards")


def batches(folder: Path, feeds: Request) -> Iterator[Dict[str, Any]]:  # noqa: UP006  # Python 3.7
    import numpy

    for file in feeds["files"]:
        with numpy.load(str(folder / file), allow_pickle=False) as arrays:
            yield {name: arrays[f"arr_{index}"] for index, name in enumerate(feeds["names"])}


def declared(model: Any, feeds: Dict[str, Any]) -> Dict[str, Any]:  # noqa: UP006  # Python 3.7
    """Feeds in the types that the model declares: AMCT's passes may turn an int32 input into float (amct.md §12)."""
    types = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool"}
    given = {}
    for value in model.get_inputs():
        array = feeds[value.name]
        wanted = types.get(value.type, str(array.dtype))
        given[value.name] = array if str(array.dtype) == wanted else array.astype(wanted)
    return given


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
