"""What is read when the engines start: the chip (its name, its cores, whether it has bfloat16; atc.md §3.1, §7.2), and
the files that set the precision of single operators (§3.2). It comes after every check of the flags and before anything
of the model (ge v8.5.0 api/atc/main_impl.cc:1457). What is wrong is an AtcFailure with the code that stands there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from workbench.cann_emulator.atc.failure import Console, failure, invalid
from workbench.cann_emulator.atc.fusion import Switches, read_switches
from workbench.cann_emulator.atc.operator_types import OPERATORS, words
from workbench.cann_emulator.atc.outputs import result_path
from workbench.cann_emulator.atc.precision import BLACK, OF_TYPE, TWINS, WHITE, CustomDtypes, Precision
from workbench.cann_emulator.om import ITEM_BYTES, Dtype
from workbench.values.documents.canonical import decode
from workbench.values.documents.json_reader import loads

_NAMES = words(OPERATORS["chips"])
"""Platform files of the runtime repository v8.5.0, src/platform/platform_config. Chips of older releases, such as
Ascend310, have none and are unknown [inferred: 8.5.0 ships more packages than are open, which could add some]."""
_SAME_AS = {"Ascend910": "Ascend910A"}
_BF16_CHIPS = re.compile(r"Ascend910B[1-4]|Ascend910_9")
"""Those that convert float32 to bfloat16: `f322bf16*` in their platform files [inferred beyond 910B]."""
_BF16_MODES = ("allow_mix_precision_bf16", "allow_fp32_to_bf16", "mixed_bfloat16")
_IMPLEMENTATIONS = words("""
    high_precision high_performance support_out_of_bound_index keep_fp16 super_performance enable_float_32_execution
    enable_hi_float_32_execution norm_class
    """)
_LISTS = ("black-list", "white-list", "gray-list")
_ACTIONS = ("to-add", "to-remove")
_GE_DTYPES: Mapping[str, Dtype | None] = {
    "float": "float32",
    **{dtype: dtype for dtype in ITEM_BYTES},
    # known to GE, held by no tensor here
    **dict.fromkeys(("double", "int16", "uint16", "uint32", "int4", "string", "complex64", "complex128"), None),
}


class Engine(NamedTuple):
    """Everything that decides how a graph is compiled."""

    soc_version: str
    switches: Switches
    precision: Precision


def start_engine(options: Mapping[str, str], console: Console) -> Engine:
    """The chip, and what the files say that the flags name, read in this order; all but --keep_dtype."""
    soc_version = options.get("soc_version", "")
    soc_version = _SAME_AS.get(soc_version, soc_version)
    if soc_version not in _NAMES:
        # the runtime says so, before the engine would (runtime v8.5.0 src/runtime/api/api_c_soc.cc:84, called by ge
        # v8.5.0 gelib.cc:106,324)
        raise failure("EE1001", extend_info=f"there is no SoC version {options.get('soc_version', '')}")
    for flag in ("precision_mode", "precision_mode_v2"):
        mode = options.get(flag, "")
        if mode in _BF16_MODES and not _BF16_CHIPS.match(soc_version):
            why = "bfloat16 is not supported by this chip"
            raise failure("E20101", parameter=f"ge.exec.{flag}", value=mode, reason=why)
    # `cube|vector`, or one number for both; at least one core, and no more than the chip has by its platform file
    aicore_num = options.get("aicore_num", "")
    parts = aicore_num.split("|") if aicore_num else []
    if len(parts) > 2 or not all(re.fullmatch(r"0*[1-9][0-9]{0,8}", part) for part in parts):
        raise invalid("aicore_num", aicore_num, 'it is one or two positive numbers, "cube|vector"')
    for number, cores in zip(parts, OPERATORS["cores"].get(soc_version, ()), strict=False):
        if int(number) > cores:
            raise failure("E20103", parameter="ge.aicoreNum", value=number, range=str(cores))
    if options.get("virtual_type") == "1" and options.get("buffer_optimize") == "l1_optimize":
        # refused per the option page BUFFER_OPTIMIZE; with which code is not established [inferred]
        why = "it cannot be used with virtual_type 1"
        raise failure("E20101", parameter="ge.bufferOptimize", value="l1_optimize", reason=why)
    result_path().unlink(missing_ok=True)  # of an earlier run; a run that fails before this leaves it
    switches = read_switches(options.get("fusion_switch_file", ""))
    given = options.get("precision_mode") or options.get("precision_mode_v2") or "force_fp16"
    white, black = read_mixlist(options.get("modify_mixlist", ""))
    precision = Precision(
        mode=TWINS.get(given, given),
        white=white,
        black=black,
        custom=_read_customize_dtypes(options.get("customize_dtypes", "")),
        implementations=_read_implementations(options, console),
    )
    return Engine(soc_version, switches, precision)


def read_mixlist(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """White and black types: the built-in ones as --modify_mixlist changes them."""
    if not path:
        return WHITE, BLACK
    text = _read(path, "E21001", file_name=path)
    if not text:
        raise failure("E19999")
    try:
        content = decode(dict[str, dict[str, tuple[str, ...]]], loads(text, once=False), "the file")
    except ValueError as error:
        raise failure("E21002", file_name=path, reason=str(error)) from error
    changes_of: dict[str, set[tuple[str, str]]] = {}  # type → (action, list) of every entry about it
    for key, actions in content.items():
        if key not in _LISTS or not set(actions) <= set(_ACTIONS):
            why = f"{key} with {', '.join(actions)}: it is {', '.join(_LISTS)}, each with {', '.join(_ACTIONS)}"
            raise failure("E21002", file_name=path, reason=why)
        for action, kinds in actions.items():
            for kind in kinds:
                changes_of.setdefault(kind.strip(), set()).add((action, key.removesuffix("-list")))
    lists = {"white": set(WHITE), "black": set(BLACK)}
    for kind, changes in changes_of.items():
        added, removed = ({name for action, name in changes if action == wanted} for wanted in _ACTIONS)
        # one list more, or one less, or from one to another; grey is where a type is that no list has
        if max(len(added), len(removed)) > 1 or added & removed or (not added and removed == {"gray"}):
            why = f"these changes exclude each other: {sorted(' '.join(change) for change in changes)}"
            raise failure("E20003", parameter=kind, filepath=path, reason=why)
        for name, types in lists.items():
            if added or name in removed:
                types.discard(kind)
            if name in added:
                types.add(kind)
    return frozenset(lists["white"]), frozenset(lists["black"])


def read_keep_dtype(path: str) -> frozenset[str]:
    """What keeps the graph's dtype: names, and types behind `OpType::`."""
    kept = set()
    for line in _lines(path, "E10410", cfgpath=path):
        head, separator, kind = (part.strip() for part in line.partition("::"))
        if separator and head == "OpType":
            if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", kind):
                raise failure("E10003", parameter="keep_dtype", value=kind, reason="a type is in PascalCase")
            line = f"{OF_TYPE}{kind}"
        kept.add(line)
    return frozenset(kept)


def _read_customize_dtypes(path: str) -> dict[str, CustomDtypes]:
    """Entries by name, or type behind `OpType::`; the first of a name counts."""
    found: dict[str, CustomDtypes] = {}
    missing = {"parameter": "ge.customizeDtypes", "value": path, "reason": "the file cannot be opened"}
    for line in _lines(path, "E20101", **missing):
        match = re.fullmatch(r"(?:OpType::(?P<type>[^:]+):|(?P<name>.+?)::)(?P<dtypes>(?:In|Out)putDtype:.*)", line)
        parts = match and re.fullmatch(r"(?:InputDtype:(.*?))?(?:,?OutputDtype:(.*))?", match["dtypes"])
        if not match or not parts:
            forms = "name::InputDtype:…,OutputDtype:… or OpType::Type:InputDtype:…,OutputDtype:…"
            raise failure("E20101", parameter="ge.customizeDtypes", value=line, reason=f"a line is {forms}")
        key = f"{OF_TYPE}{match['type'].strip()}" if match["type"] else match["name"].strip()
        found.setdefault(key, (_dtypes(parts[1], path), _dtypes(parts[2], path)))
    return found


def _dtypes(text: str | None, path: str) -> tuple[Dtype | None, ...]:
    named = [word.strip() for word in text.rstrip(",").split(",")] if text else []
    for word in named:
        if word and word not in _GE_DTYPES:
            raise failure("E20003", parameter=word, filepath=path, reason="there is no such dtype")
    return tuple(_GE_DTYPES[word] if word else None for word in named)


def _read_implementations(options: Mapping[str, str], console: Console) -> dict[str, str]:
    """Implementation modes by node name, by type behind `OpType::`, and for everything, "".

    With --op_precision_mode the two older flags are void. Without a list of types they mean the library's own list,
    which is not public: every type, for high_precision [inferred], and nothing, for high_performance, the default.
    What is wrong with a line of the file only the log tells.
    """
    path, mode = options.get("op_precision_mode", ""), options.get("op_select_implmode", "")
    if not path:
        types = [kind.strip() for kind in options.get("optypelist_for_implmode", "").split(",") if kind.strip()]
        if types and not mode.endswith("_for_all"):
            return {f"{OF_TYPE}{kind}": mode for kind in types}
        return {"": mode.removesuffix("_for_all")} if mode not in ("", "high_performance") else {}
    found: dict[str, str] = {}
    prefixes, section = {"[ByOpType]": OF_TYPE, "[ByNodeName]": ""}, "[ByOpType]"
    for line in _lines(path, "E21001", file_name=path):
        key, _, mode = (part.strip() for part in line.partition("="))
        if line.startswith("["):
            section = line
        elif section in prefixes and mode in _IMPLEMENTATIONS:
            found[f"{prefixes[section]}{key}"] = mode
        else:
            console.log("warning", "FE", f"{path}: the section {section} or the mode {mode!r} of {key} is unknown")
    return found


def _lines(path: str, missing: str, **arguments: str) -> list[str]:
    lines = _read(path, missing, **arguments).splitlines() if path else []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _read(path: str, missing: str, **arguments: str) -> str:
    """A file's text; a failure of code `missing` where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise failure(missing, **arguments) from error
