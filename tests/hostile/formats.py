"""Every format that the product reads from outside: sound files of it, hostile ones, and its real reader."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests import tiny
from tests.hostile.mutations import hostile_bytes, hostile_npy, hostile_npz, hostile_onnx, hostile_text
from tests.report.written.materials import VERDICT, capacity
from tests.word_pieces import write_tokenizer
from workbench.api.opening import named_candidate
from workbench.cann_emulator.acl.dumping import parse_config as parse_acl
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.atc.engine import read_keep_dtype, read_mixlist
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.fusion import read_switches
from workbench.cann_emulator.dump_file import Values, dump_bytes
from workbench.cann_emulator.fit import read_op_summary
from workbench.cann_emulator.om import MAGIC, NotAnOm, read_om
from workbench.graph.door import open_foreign
from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, operator_counts, read_model
from workbench.inputs.dataset import read_manifest
from workbench.inputs.dataset.arrays import read_arrays
from workbench.inputs.experiment import read_experiment
from workbench.load.requests import bodies_of_file
from workbench.prediction.capacity import read_capacity
from workbench.quantization.amct.config import parse_config
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.lowering.normalize import normalized
from workbench.shipping.acceptance.baseline import read_baseline
from workbench.shipping.acceptance.verdict import read_verdict
from workbench.space.reader import read_space
from workbench.space.service_reader import read_trace
from workbench.study.amct_command import calibrate
from workbench.study.inspection import inspect_model
from workbench.study.model_data import open_data
from workbench.targets.ascend.atc.compile_story import read_fusions
from workbench.targets.ascend.atc.om_json import count_kernels, read_operators
from workbench.targets.ascend.dump.dump_file import read_dump_file
from workbench.targets.ascend.npu_smi import parse_info, parse_mapping, parse_pairs
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiles.tasks import read_tasks
from workbench.values.errors import WorkbenchError
from workbench.values.modelled_times.device_data import OVERRIDE_VARIABLE, SHIPPED, load_device_data
from workbench.values.preprocess import encode, open_preprocessor
from workbench.values.system.environment import variables_set

OM_JSON = b'{"graph": [{"op": [{"name": "a", "type": "MatMulV2", "input_desc": [{"dtype": "DT_INT8"}]}]}]}'
FUSION_RESULT = (
    b'{"session_and_graph_id_0_0": {"graph_fusion": {"A": {"match_times": "1", "effect_times": "1"}}, "ub_fusion": {}}}'
)
ACL_JSON = b'{"dump": {"dump_path": "out", "dump_list": [{"model_name": "m"}]}, "profiler": {"switch": "off"}}'
OP_SUMMARY = (
    b"Op Name,OP Type,Task Type,Task Duration(us),Task Wait Time(us),Input Data Types\n"
    b"a,MatMulV2,AI_CORE,1.5,0.1,INT8;INT8\nb,Add,AI_VECTOR_CORE,2.5,N/A,FLOAT16;FLOAT16\n"
)
TASK_TIME = (
    b"Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n"
    b"0,a,AI_CORE,1,1,1.500,1717575960208070.758\t,1717575960208072.258\t\n"
    b"0,N/A,MEMCPY_ASYNC,1,2,9.000,1717575960208080.000\t,1717575960208089.000\t\n"
)
ROOT = Path(__file__).parents[2]
Make = Callable[[Sequence[bytes], random.Random], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Attributes:
    name: of the file that is written; its folder holds what the other files of `prepare` are.
    folder: where the file must lie below that of `prepare`.
    refusals: what its reader raises on purpose.
    """

    name: str
    folder: str = "data"
    seeds: Sequence[bytes]
    make: Make
    read: Callable[[Path], Any]
    refusals: tuple[type[Exception], ...] = (WorkbenchError,)

    def place(self, root: Path) -> Path:
        """Where the file is written: not over the sound one, which other formats are read with."""
        stem, _, suffix = self.name.rpartition(".")
        return root / self.folder / f"{stem}-hostile.{suffix}"

    def hostile(self, seed: int) -> bytes:
        return self.make(self.seeds, random.Random(seed))


def prepare(folder: Path) -> dict[str, Format]:
    """Sound files around the hostile one, and the formats by name."""
    experiment = tiny.write_workspace(folder)
    data = folder / "data"
    model = data / "model.onnx"
    write_tokenizer(data / "tokenizer.json")
    (data / "labels.json").write_text('["a", "b"]')
    (data / "rows.csv").write_text("text,label\nloan due,a\npayment,b\n")
    text = {"files": {"calibration": "rows.csv", "validation": "rows.csv"}, "task": "classification", "version": 1}
    text |= {"labels": "labels.json", "tokenizer": "tokenizer.json", "max_length": 16, "bins": [8, 16]}
    (data / "text.yaml").write_text(json.dumps(text))
    found = read_model(model)
    layers = quantizable_layers(normalized(load_graph(found)))
    done = calibrate(model, folder / "calibrated", data=_batches(data, found.inputs[0].name))
    written = {file.name: file.read_bytes() for file in done.files}

    def beside(name: str) -> bytes:
        return (data / name).read_bytes()

    def array(path: Path) -> Any:
        return read_arrays({"x": path}, label=None, classes=None, tags=False)

    def text_manifest(key: str) -> Callable[[Path], Any]:
        def read(path: Path) -> Any:
            changed = {**text, key: path.name}
            if key == "files":
                changed[key] = dict.fromkeys(("calibration", "validation"), path.name)
            manifest = path.parent / f"for-{key}.yaml"
            manifest.write_text(json.dumps(changed))
            return read_manifest(manifest)

        return read

    def npu_smi(path: Path) -> Any:
        shown = path.read_bytes().decode("utf-8", "replace")
        return [read(shown) for read in (parse_info, parse_mapping, parse_pairs)]

    texts = {
        "experiment.yaml": (read_experiment, [experiment.read_bytes()]),
        "space.yaml": (
            read_space,
            [
                p.read_bytes()
                for p in (*(ROOT / "search_spaces").glob("*.yaml"), folder / "search_spaces" / "tiny.yaml")
            ],
        ),
        "manifest.yaml": (read_manifest, [beside("manifest.yaml"), beside("text.yaml")]),
        "baseline.yaml": (read_baseline, [p.read_bytes() for p in (ROOT / "experiments/baselines").glob("*.yaml")]),
        "verdict.json": (read_verdict, [json.dumps(VERDICT.to_json()).encode()]),
        "capacity.json": (read_capacity, [json.dumps(capacity().to_json()).encode()]),
        "device.yaml": (_fitted_figures, [_device()]),
        "labels.json": (text_manifest("labels"), [beside("labels.json"), b'{"a": 0, "b": 1}']),
        "tokenizer.json": (_tokenize, [beside("tokenizer.json")]),
        "rows.csv": (text_manifest("files"), [beside("rows.csv"), b'text,label\n"a ""b"", c",a\n\n"x\ny",b\n']),
        "rows.jsonl": (text_manifest("files"), [b'{"text": "loan", "label": "a"}\n{"text": "due", "label": 1}\n']),
        "trace.txt": (read_trace, [b"0\n0.5\n1.25\n", b"1732000000.1\n1732000000.2\n"]),
        "requests.jsonl": (
            bodies_of_file,
            [b'{"text": "a"}\n{"words": ["a", "b"]}\n{"inputs": {"x": [[1.0]]}}\n"a"\n'],
        ),
        "requests.csv": (bodies_of_file, [b"id,text\n1,loan\n2,due\n"]),
        "candidate.json": (lambda path: named_candidate(str(path), None), [_candidate()]),  # type: ignore[arg-type]
        "amct.cfg": (_amct_config, [p.read_bytes() for p in (ROOT / "calibration").glob("*.cfg")]),
        "amct.json": (_amct_config, [written["config.json"]]),
        "record.txt": (
            lambda path: parse_record(path.read_text("utf-8", "replace"), layers=layers, model_sha256="", file=path),
            [written["record.txt"]],
        ),
        "npu_smi.txt": (npu_smi, [p.read_bytes() for p in (ROOT / "tests/targets/ascend/npu_smi").glob("*.txt")]),
    }
    formats = {
        n: Format(name=n, folder="experiments" if n.startswith("exp") else "data", seeds=s, make=hostile_text, read=r)
        for n, (r, s) in texts.items()
    }
    vendor = (WorkbenchError, ValueError, OSError)
    atc, acl = (AtcFailure,), (Failed,)

    def by_name(read: Callable[[str], Any]) -> Callable[[Path], Any]:
        return lambda path: read(str(path))

    emulated: dict[str, tuple[Callable[[Path], Any], bytes, tuple[type[Exception], ...]]] = {
        "om.json": (lambda path: count_kernels(path.read_bytes()), OM_JSON, vendor),
        "dumped.json": (read_operators, OM_JSON, vendor),
        "fusion_result.json": (read_fusions, FUSION_RESULT, vendor),
        "fusion_switch.cfg": (by_name(read_switches), b'{"Switch": {"GraphFusion": {"A": "on"}, "UBFusion": {}}}', atc),
        "fusion_switch.txt": (by_name(read_switches), b"APass:on\nBPass:off\n", atc),
        "mixlist.json": (by_name(read_mixlist), b'{"black-list": {"to-add": ["A"], "to-remove": ["B"]}}', atc),
        "keep_dtype.txt": (by_name(read_keep_dtype), b"node_a\nOpType::MatMul\n", atc),
        "acl.json": (lambda path: parse_acl(path.read_bytes(), str(path)), ACL_JSON, acl),
        "op_summary.csv": (read_op_summary, OP_SUMMARY, vendor),
        "op_summary_0.csv": (lambda path: read_profile([path.parent]), OP_SUMMARY, vendor),
        "task_time_0.csv": (lambda path: read_tasks([path.parent]), TASK_TIME, vendor),
    }
    formats |= {
        n: Format(name=n, folder="vendor", seeds=[s], make=hostile_text, read=r, refusals=e)
        for n, (r, s, e) in emulated.items()
    }
    for place in ("experiments", "data", "vendor"):
        (folder / place).mkdir(exist_ok=True)
    models = [model.read_bytes(), written["model_qdq_model.onnx"], written["model_deploy_model.onnx"]]
    arrays = [beside("calibration.npz"), (data / "batches.npz").read_bytes()]
    formats |= {
        "hostile.onnx": Format(name="hostile.onnx", seeds=models, make=hostile_onnx, read=_open_model),
        "inspected.onnx": Format(name="inspected.onnx", seeds=models, make=hostile_onnx, read=inspect_model),
        "rows.npz": Format(
            name="rows.npz",
            seeds=arrays,
            make=hostile_npz,
            read=lambda path: read_arrays(path, label="label", classes=4, tags=False),
        ),
        "batches.npz": Format(
            name="batches.npz", seeds=arrays, make=hostile_npz, read=lambda path: open_data(path, found, batch=8)
        ),
        "rows.npy": Format(name="rows.npy", seeds=[b""], make=hostile_npy, read=array),
        "Add.dense.1.0.1795446940563602": Format(
            name="Add.dense.1.0.1795446940563602",
            folder="vendor",
            seeds=[_dump()],
            make=hostile_bytes,
            read=_load_dump,
        ),
        "model.om": Format(
            name="model.om",
            seeds=[_om()],
            make=hostile_bytes,
            read=lambda path: read_om(path.read_bytes()),
            refusals=(NotAnOm,),
        ),
    }
    return formats


def _open_model(path: Path) -> Any:
    """What the commands do with a model before any work."""
    proto = load_graph(open_foreign(path))
    return operator_counts(proto), quantizable_layers(normalized(proto))


def _tokenize(path: Path) -> Any:
    return encode(open_preprocessor(path, max_length=16), ["loan payment due", "张"])


def _amct_config(path: Path) -> Any:
    return parse_config(path.read_bytes().decode("utf-8", "replace"), file=str(path))


def _batches(data: Path, name: str) -> Path:
    with np.load(data / "calibration.npz") as stored:
        np.savez(data / "batches.npz", arr_0=stored[name][:8], arr_1=stored[name][8:16])
    return data / "batches.npz"


def _fitted_figures(path: Path) -> object:
    with variables_set({OVERRIDE_VARIABLE: str(path)}):
        return load_device_data("Ascend910B3")


def _device() -> bytes:
    lines = SHIPPED.read_text(encoding="utf-8").split("\n")
    start = lines.index("parameters:")
    block = [lines[start]]
    for line in lines[start + 1 :]:
        if line and not line.startswith((" ", "#")):
            break
        block.append(line)
    return "\n".join(["version: 1", "soc_version: Ascend910B3", *block, ""]).encode()


def _candidate() -> bytes:
    from workbench.values.candidate import Candidate

    return json.dumps(Candidate(target="onnxruntime").to_json()).encode()


def _dump() -> bytes:
    tensor = Values(array=np.arange(6, dtype=np.float16).reshape(2, 3), dtype="float16", origin=("dense", 0))
    return dump_bytes("dense", (tensor,), (tensor,), time_us=1, emulator="test")


def _load_dump(path: Path) -> Any:
    found = read_dump_file(path)
    return [tensor.load() for tensor in (*found.inputs, *found.outputs)]


def _om() -> bytes:
    graph = b"graph"
    header = {
        "emulated": True,
        "graph_sha256": hashlib.sha256(graph).hexdigest(),
        "version": 1,
        "gears": [],
        "inputs": [],
    }
    written = json.dumps(header).encode()
    return MAGIC + struct.pack("<QQ", len(written), len(graph)) + written + graph
