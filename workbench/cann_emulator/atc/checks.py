"""Every check of the flags before the engines start, in ATC's order: the first that fails decides (atc.md §1).

Paths (atc.md §5.4 end, §6): an input path is judged by its resolved form, an output path as it is written, and a
missing output folder is made here (base/common/util.cc:36-48,179-305).

The order is that of ge v8.5.0 api/atc/main_impl.cc:1995-2035, 633-860, 1618-1660; numbers are the steps of atc.md §1.
Values of single flags were checked before, while the command line was parsed. What is judged later stands in
`conversion`: static shapes, --out_nodes, --output_type, oo_* and --export_compile_stat among it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure, inner_error, invalid
from workbench.cann_emulator.atc.flags import FRAMEWORKS, value_of
from workbench.cann_emulator.atc.shapes import check_shape_flags

Options = Mapping[str, str]

_PATH_MAX = 4096
_ALPHABET = re.compile(r"[一-龥A-Za-z0-9./_-]+")
_CAFFE = "0"
_NO_CAFFE = re.compile(r"Ascend910B([1-4]|2C|4-1)|Ascend910_9.*")
"""Six chips by their whole name and a family by its beginning (main_impl.cc:46-55); Ascend910B itself is not among
them."""
_FORMATS = {
    "0": ("NCHW", "ND"),
    "3": ("NCHW", "NHWC", "ND", "NCDHW", "NDHWC"),
    "5": ("NCHW", "ND", "NCDHW"),
}
_MIXED_MODES = ("allow_mix_precision", "allow_mix_precision_fp16", "allow_mix_precision_bf16")
_MIXED_MODES_V2 = ("mixed_float16", "mixed_bfloat16", "mixed_hif8")
_NANO = ("Ascend035", "Ascend035A", "Ascend035B")
_PROCESSORS = ("x86_64", "aarch64")
_OTHER_NAMES = {"arm64": "aarch64", "amd64": "x86_64"}
_OPTIMIZER: Mapping[str, tuple[str, ...]] = {
    "oo_level": ("O1", "O3"),
    "oo_constant_folding": ("", "true", "false"),
    "oo_dead_code_elimination": ("", "true", "false"),
    "topo_sorting_mode": ("", "0", "1", "2", "3"),
    "export_compile_stat": ("0", "1", "2"),
}
"""The flags of the graph's optimizer, whose values are looked at when a compile begins (ge v8.5.0
base/common/option_register.cc, graph_metadef/graph/option/optimization_option.cc). Where an empty value stands for the
default, it is among them."""
EMPTY_IS_A_VALUE = frozenset(flag for flag, values in _OPTIMIZER.items() if "" not in values)
"""Flags that an empty value is wrong for."""


def check_input(path: str, flag: str) -> None:
    """A file that is read."""
    if not path:
        raise failure("E10004", parameter=flag)
    try:
        resolved = str(Path(path).resolve(strict=True))
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        text = error.strerror if isinstance(error, OSError) else "Too many levels of symbolic links"
        raise invalid(flag, path, f"it cannot be resolved: {text}") from error
    _check_alphabet(resolved, path, flag)
    if not os.access(resolved, os.R_OK):
        raise invalid(flag, path, "it cannot be read: [Errno 13] Permission denied")


def check_output(path: str, flag: str) -> None:
    """A file that is written at the end; its folder is made when it is missing, for its owner alone."""
    if not path:
        raise failure("E10004", parameter=flag)
    if len(os.fsencode(path)) >= _PATH_MAX:
        raise invalid(flag, path, f"it is as long as {_PATH_MAX} bytes or longer")
    _check_alphabet(path, path, flag)
    if os.access(path, os.F_OK):
        if not os.access(path, os.W_OK):
            raise invalid(flag, path, "it cannot be written: [Errno 13] Permission denied")
    elif folder := path.rpartition("/")[0]:
        try:
            for part in (*reversed(Path(folder).parents), Path(folder)):
                part.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise invalid(flag, path, f"cannot create directory: {error.strerror}") from error


def _check_alphabet(judged: str, path: str, flag: str) -> None:
    if not _ALPHABET.fullmatch(judged):
        why = "a path holds letters, digits, '.', '/', '_', '-' and Chinese characters only"
        # the vendor's matcher reports for itself before its caller does: an inner error, never the headline
        raise AtcFailure(inner_error("the expression for paths does not match"), *invalid(flag, path, why).records)


def check_framework(options: Options) -> None:
    """Steps 1, 3 and 4: what was withdrawn, the weights, the framework, and what goes with a nano chip."""
    if options.get("auto_tune_mode"):
        why = "Auto Tune was withdrawn, use the AOE tool for tuning instead"
        raise invalid("auto_tune_mode", options["auto_tune_mode"], why)
    if options.get("singleop"):
        raise failure("E10055", reason="this atc is emulated and makes no models of single operators (--singleop)")
    mode, framework, chip = value_of(options, "mode"), options.get("framework"), options.get("soc_version", "")
    if mode == "1" and framework == "1":
        raise invalid("framework", "1", "with --mode=1 it is 0(Caffe), 3(TensorFlow) or 5(ONNX)")
    if options.get("weight"):
        check_input(options["weight"], "weight")
    if mode in ("0", "3", "30"):
        if framework is None:
            raise failure("E10007", parameter="framework", support=FRAMEWORKS)
        if framework == _CAFFE and _NO_CAFFE.fullmatch(chip):
            raise invalid("framework", framework, f"{chip} does not support Caffe")
        if framework == _CAFFE and not options.get("weight"):
            raise failure("E10008")
    if mode == "30" and chip not in _NANO:
        raise failure("E10055", reason=f"--mode=30 goes with --soc_version {', '.join(_NANO)} only")
    if chip in _NANO and mode != "30":
        raise failure("E10055", reason=f"--soc_version={chip} goes with --mode=30 only")


def check_json(options: Options) -> None:
    """Mode 1: both paths are looked at before the run ends."""
    records: list[Record] = []
    for flag, check in (("om", check_input), ("json", check_output)):
        try:
            check(options.get(flag, ""), flag)
        except AtcFailure as error:
            records += error.records
    if records:
        raise AtcFailure(*sorted(records, key=lambda record: record.code != "E10004"))


def check_conversion(options: Options, notice: Callable[[str], None]) -> None:
    """Modes 0, 3 and 30: steps 5 to 14.

    Args:
        notice: takes what appears on the screen when the checks reach the shapes.
    """
    mode, writes = value_of(options, "mode"), value_of(options, "mode") != "3"
    layout, layouts = options.get("input_format"), _FORMATS.get(options["framework"])
    if layout and layouts and layout not in layouts:
        raise invalid("input_format", layout, f"this framework has {', '.join(layouts)}")
    for flag in ("soc_version", *(["output"] if writes else []), "model"):
        if not options.get(flag):
            raise failure("E10054", parameter=f"--{flag}")
    check_input(options["model"], "model")
    if writes:
        output = options["output"]
        check_output(output + (".exeom" if mode == "30" else ".om"), "output")
        if len(os.fsencode(output)) > _PATH_MAX:
            raise failure("E10021", parameter="output", size=str(_PATH_MAX))
        if output.endswith(("/", "\\")):
            raise failure("E10022", parameter="output", filename=output)
    if options.get("optypelist_for_implmode") and not options.get("op_select_implmode"):
        why = "--op_select_implmode and --optypelist_for_implmode are given together"
        raise invalid("op_select_implmode", "", why)
    if options.get("op_precision_mode"):
        check_input(options["op_precision_mode"], "op_precision_mode")
    _check_switch(options, "is_weight_clip", ("0", "1"))
    precision, precision_v2 = options.get("precision_mode"), options.get("precision_mode_v2")
    if precision and precision_v2:
        raise failure("E10056", parameter1="--precision_mode", parameter2="--precision_mode_v2")
    if options.get("modify_mixlist") and precision not in _MIXED_MODES and precision_v2 not in _MIXED_MODES_V2:
        why = f"--precision_mode {', '.join(_MIXED_MODES)} or --precision_mode_v2 {', '.join(_MIXED_MODES_V2)}"
        raise invalid("modify_mixlist", options["modify_mixlist"], f"it needs {why}")
    if options.get("input_shape_range"):  # 11
        notice("WARNING: input_shape_range is deprecated and will be removed, use input_shape instead")
        if options.get("input_shape"):
            notice("WARNING: input_shape is ignored beside input_shape_range")
    check_shape_flags(options)
    if options.get("insert_op_conf") and options.get("dynamic_dims"):
        raise invalid("insert_op_conf", options["insert_op_conf"], "AIPP and --dynamic_dims do not go together")
    for flag in ("cal_conf", "op_name_map", "insert_op_conf", "compress_weight_conf"):  # 13
        if options.get(flag):
            check_input(options[flag], flag)
    _check_switch(options, "enable_compress_weight", ("true", "false", ""))
    if options.get("enable_compress_weight") == "true" and options.get("compress_weight_conf"):
        raise failure("E10047", parameter0="enable_compress_weight", parameter1="compress_weight_conf")
    if options.get("keep_dtype"):
        check_input(options["keep_dtype"], "keep_dtype")
    check_output(value_of(options, "check_report"), "check_report")  # 14
    for flag in ("save_original_model", "enable_single_stream"):
        _check_switch(options, flag, ("true", "false", ""))
    for flag in ("ac_parallel_enable", "tiling_schedule_optimize"):
        _check_switch(options, flag, ("0", "1", ""))
    if mode == "30" and options.get("display_model_info") == "1":
        raise invalid("display_model_info", "1", "a model for a nano device cannot be shown")
    machine = os.uname().machine
    own = {"host_env_os": "linux", "host_env_cpu": _OTHER_NAMES.get(machine, machine)}
    for flag, known in (("host_env_os", ("linux",)), ("host_env_cpu", _PROCESSORS)):
        if (value := options.get(flag) or own[flag]) not in known:
            raise invalid(flag, value, f"the operator packages are for {', '.join(known)}")
    _check_switch(options, "allow_hf32", ("true", "false", ""))
    _check_switch(options, "quant_dumpable", ("0", "1", ""))


def _check_switch(options: Options, flag: str, values: tuple[str, ...]) -> None:
    value = value_of(options, flag)
    if value not in values:
        raise failure("E10005" if "true" in values else "E10006", parameter=flag, value=value)


def check_optimization_flags(options: Options) -> None:
    """What is wrong is told behind an inner error for --topo_sorting_mode alone."""
    for flag, values in _OPTIMIZER.items():
        value = options.get(flag)
        if value is None or value in values:
            continue
        reason = f"it is one of {', '.join(filter(None, values))}"
        refused, inner = invalid(flag, value, reason), inner_error(f"The value {value} of {flag} is out of range.")
        raise AtcFailure(inner, *refused.records) if flag == "topo_sorting_mode" else refused
