"""The files that set the precision of single operators (atc.md §3.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.cann_emulator.atc.operator_types import words
from workbench.cann_emulator.atc.precision import BLACK, OF_TYPE, TWINS, WHITE, CustomDtypes, Precision
from workbench.cann_emulator.om import Dtype
from workbench.values.documents.json_reader import loads

IMPLEMENTATIONS = words("""
    high_precision high_performance support_out_of_bound_index keep_fp16 super_performance enable_float_32_execution
    enable_hi_float_32_execution norm_class
    """)
_LISTS = ("black-list", "white-list", "gray-list")
_ACTIONS = ("to-add", "to-remove")
_GE_DTYPES: Mapping[str, Dtype | None] = {
    "float": "float32",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "int64": "int64",
    "uint64": "uint64",
    "bool": "bool",
    # known to GE, held by no tensor here
    **dict.fromkeys(("double", "int16", "uint16", "uint32", "int4", "string", "complex64", "complex128"), None),
}
_PASCAL_CASE = re.compile(r"[A-Z][A-Za-z0-9]*")


def read_precision(options: Mapping[str, str]) -> tuple[Precision, list[str]]:
    """What every flag and file about precision says that the engine reads when it starts, all but --keep_dtype; and
    what only the log tells of the files.

    Raises:
        AtcFailure: E21001, E21002, E20003 (modify_mixlist), E20003, E20101 (customize_dtypes).
    """
    given = options.get("precision_mode") or options.get("precision_mode_v2") or "force_fp16"
    mode = TWINS.get(given, given)
    warnings: list[str] = []
    white, black = read_mixlist(options.get("modify_mixlist", ""))
    custom = read_customize_dtypes(options.get("customize_dtypes", ""))
    implementations = read_implementations(options, warnings)
    precision = Precision(mode=mode, white=white, black=black, custom=custom, implementations=implementations)
    return precision, warnings


def with_kept_types(precision: Precision, options: Mapping[str, str]) -> Precision:
    """The precision with what --keep_dtype says, which is read once the model is parsed (ge v8.5.0
    api/atc/main_impl.cc, SetAttrOptions).

    Raises:
        AtcFailure: those of `read_keep_dtype`.
    """
    kept = read_keep_dtype(options.get("keep_dtype", ""))
    if precision.mode == "must_keep_origin_dtype":
        return precision  # every type is kept anyway
    return replace(precision, kept=kept)


def read_mixlist(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """White and black types: the built-in ones as --modify_mixlist changes them.

    Raises:
        AtcFailure: E21001 (missing), E19999 (empty), E21002 (another form), E20003 (changes that exclude each other).
    """
    if not path:
        return WHITE, BLACK
    text = _read(path)
    if not text:
        raise failure("E19999")
    try:
        content = loads(text, once=False)
    except ValueError as error:
        raise failure("E21002", file_name=path, reason=f"it is no JSON: {error}") from error
    changes: dict[str, set[str]] = {}
    for sign, which, kind in _mixlist_entries(content, path):
        changes.setdefault(kind, set()).add(f"{sign}{which}")
    white, black = set(WHITE), set(BLACK)
    for kind, wanted in changes.items():
        added, removed = ({change[1:] for change in wanted if change[0] == sign} for sign in "+-")
        # one list more, or one less, or from one to another; grey is where a type is that no list has
        if max(len(added), len(removed)) > 1 or added & removed or (not added and removed == {"gray"}):
            raise failure(
                "E20003", parameter=kind, filepath=path, reason=f"these changes exclude each other: {sorted(wanted)}"
            )
        white.discard(kind)
        black.discard(kind)
        if "+white" in wanted:
            white.add(kind)
        if "+black" in wanted:
            black.add(kind)
        # a removal alone leaves the other list as it was
        if wanted == {"-black"} and kind in WHITE:
            white.add(kind)
        if wanted == {"-white"} and kind in BLACK:
            black.add(kind)
    return frozenset(white), frozenset(black)


def _mixlist_entries(content: Any, path: str) -> list[tuple[str, str, str]]:
    """(+ or -, list, type) of every entry."""
    if not isinstance(content, dict):
        raise failure("E21002", file_name=path, reason="it is no JSON object")
    entries: list[tuple[str, str, str]] = []
    for key, actions in content.items():
        if key not in _LISTS or not isinstance(actions, dict):
            raise failure("E21002", file_name=path, reason=f"{key} is none of {', '.join(_LISTS)}, or no object")
        for action, kinds in actions.items():
            if action not in _ACTIONS or not isinstance(kinds, list) or not all(isinstance(k, str) for k in kinds):
                raise failure(
                    "E21002", file_name=path, reason=f"{action} is none of {', '.join(_ACTIONS)}, or no list of types"
                )
            sign = "+" if action == "to-add" else "-"
            entries.extend((sign, key.removesuffix("-list"), kind.strip()) for kind in kinds)
    return entries


def read_keep_dtype(path: str) -> frozenset[str]:
    """What keeps the graph's dtype: names, and types behind `OpType::`.

    Raises:
        AtcFailure: E10410 (missing), E10003 (a type that is not in PascalCase).
    """
    kept = set()
    for line in _lines(path, missing="E10410"):
        head, separator, kind = line.partition("::")
        if not separator or head.strip() != "OpType":
            kept.add(line)
            continue
        if not _PASCAL_CASE.fullmatch(kind.strip()):
            raise failure("E10003", parameter="keep_dtype", value=kind.strip(), reason="a type is in PascalCase")
        kept.add(f"{OF_TYPE}{kind.strip()}")
    return frozenset(kept)


def read_customize_dtypes(path: str) -> dict[str, CustomDtypes]:
    """Entries by name, or type behind `OpType::`; the first of a name counts.

    Raises:
        AtcFailure: E20101 (a file that cannot be opened, a line of another form), E20003 (no such dtype).
    """
    found: dict[str, CustomDtypes] = {}
    for line in _lines(path, missing="E20101"):
        match = re.fullmatch(r"(?:OpType::(?P<type>[^:]+):|(?P<name>.+?)::)(?P<dtypes>(?:In|Out)putDtype:.*)", line)
        parts = match and re.fullmatch(r"(?:InputDtype:(.*?))?(?:,?OutputDtype:(.*))?", match["dtypes"])
        if not match or not parts:
            raise failure(
                "E20101",
                parameter="ge.customizeDtypes",
                value=line,
                reason="a line is name::InputDtype:…,OutputDtype:… or OpType::Type:InputDtype:…,OutputDtype:…",
            )
        key = f"{OF_TYPE}{match['type'].strip()}" if match["type"] else match["name"].strip()
        found.setdefault(key, (_dtypes(parts[1], path), _dtypes(parts[2], path)))
    return found


def _dtypes(text: str | None, path: str) -> tuple[Dtype | None, ...]:
    found: list[Dtype | None] = []
    for word in (text or "").rstrip(",").split(",") if text else ():
        word = word.strip()
        if word and word not in _GE_DTYPES:
            raise failure("E20003", parameter=word, filepath=path, reason="there is no such dtype")
        found.append(_GE_DTYPES[word] if word else None)
    return tuple(found)


def read_implementations(options: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """Implementation modes by node name, by type behind `OpType::`, and for everything, "".

    With --op_precision_mode the two older flags are void. Without a list of types they mean the library's own list,
    which is not public: every type, for high_precision [inferred], and nothing, for high_performance, the default.
    """
    path = options.get("op_precision_mode", "")
    if path:
        return _read_ini(path, warnings)
    mode = options.get("op_select_implmode", "")
    types = [kind.strip() for kind in options.get("optypelist_for_implmode", "").split(",") if kind.strip()]
    if mode.endswith("_for_all"):
        return {"": mode.removesuffix("_for_all")}
    if types:
        return {f"{OF_TYPE}{kind}": mode for kind in types}
    return {"": mode} if mode == "high_precision" else {}


def _read_ini(path: str, warnings: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    prefixes = {"[ByOpType]": OF_TYPE, "[ByNodeName]": ""}
    section = "[ByOpType]"
    for line in _lines(path, missing="E21001"):
        if line.startswith("["):
            section = line
            if section not in prefixes:
                warnings.append(f"{path}: the section {line} is unknown")
            continue
        key, _, mode = (part.strip() for part in line.partition("="))
        if mode not in IMPLEMENTATIONS:
            warnings.append(f"{path}: the mode {mode!r} of {key} is unknown and left out")
        elif section in prefixes:
            found[f"{prefixes[section]}{key}"] = mode
    return found


def check_op_debug_config(path: str) -> None:
    """--op_debug_config: `op_debug_config=oom,dump_cce` and `op_debug_list=…`; nothing here depends on it.

    Raises:
        AtcFailure: E21001 (missing) [inferred], E20101 (another option).
    """
    known = {"oom", "dump_bin", "dump_cce", "dump_loc", "ccec_O0", "ccec_g", "check_flag"}
    for line in _lines(path, missing="E21001"):
        key, _, values = (part.strip() for part in line.partition("="))
        for value in values.split(",") if key == "op_debug_config" else ():
            if value.strip() and value.strip() not in known:
                raise failure(
                    "E20101", parameter="ge.opDebugConfig", value=value, reason=f"it is none of {sorted(known)}"
                )


def _lines(path: str, *, missing: str) -> list[str]:
    if not path:
        return []
    return [line.strip() for line in _read(path, missing).splitlines() if line.strip() and not line.startswith("#")]


def _read(path: str, missing: str = "E21001") -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _missing(path, missing) from error


def _missing(path: str, code: str) -> AtcFailure:
    if code == "E20101":
        return failure(code, parameter="ge.customizeDtypes", value=path, reason="the file cannot be opened")
    return failure(code, **({"cfgpath": path} if code == "E10410" else {"file_name": path}))
