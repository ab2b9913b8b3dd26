"""ATC's codes in the user's words: what happened, and what to do about it.

A code says what kind of trouble it is; often only its message says which one (`_CASES` come first). The codes are
those of the catalogues of CANN 8.5.0 (runtime v8.5.0 src/dfx/error_manager/error_code.json; ge v8.5.0) and of the
releases before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from workbench.targets.ascend.atc.output import Message, Output

Who = Literal["model", "settings", "installation", "files", "memory", "disk", "compiler"]
"""What the trouble lies in: the 'installation' and the 'disk' (full, or no rights) fail every candidate; 'files' that
are missing and 'memory' may pass on a second try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a code, or one of its messages, means to the user."""

    problem: str
    remedy: str
    who: Who


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a failed run comes down to.

    Attributes:
        code: the vendor's; empty where it gave none.
        operator, type: the operator that the message names, where it does.
        others: further operators with the same trouble.
        quoted: the vendor's own words.
    """

    code: str
    problem: str
    remedy: str
    who: Who
    operator: str = ""
    type: str = ""
    others: tuple[str, ...] = ()
    quoted: str = ""


def _m(problem: str, remedy: str, who: Who) -> Meaning:
    return Meaning(problem=problem, remedy=remedy, who=who)


_CORRECT = "Correct this setting of the candidate."
_UNSUPPORTED = (
    "Export the model with an opset from 11 to 17, so that such operators are written in small ones; "
    "`workbench inspect` lists every one that ATC lacks."
)
_PYTHON = "Install CANN's Python requirements for the python3 on PATH, source set_env.sh, then run `workbench doctor`."
_FILE = "Check that the file exists, is whole and can be read, then run it again."
_GEARS = "Correct compile.batches and compile.sequence_bins."

CODES: Mapping[str, Meaning] = {
    "E10001": _m("a value was refused", _CORRECT, "settings"),
    "E10002": _m(
        "a shape is not of the form name:1,128", "Sizes are whole numbers, inputs separated by ;.", "settings"
    ),
    "E10003": _m("a value was refused", _CORRECT, "settings"),
    "E10004": _m("a flag is empty that needs a value", _CORRECT, "settings"),
    "E10005": _m("a value must be true or false", _CORRECT, "settings"),
    "E10006": _m("a value must be 1 or 0", _CORRECT, "settings"),
    "E10007": _m("a required flag is missing", _CORRECT, "settings"),
    "E10008": _m("a Caffe model came without its weights", "This product compiles ONNX: --framework=5.", "settings"),
    "E10009": _m("two flags for dynamic shapes were given", "Give one of them.", "settings"),
    "E10010": _m("the log level does not exist", "Use debug, info, warning, error or null.", "settings"),
    "E10011": _m(
        "a size is not positive although the file is static",
        "Give every input its sizes; sizes may be -1 only with gears.",
        "settings",
    ),
    "E10012": _m("gears for the batch, but the input has no sizes", "Name the sizes of every input.", "settings"),
    "E10013": _m("a value is out of range", _CORRECT, "settings"),
    "E10014": _m("a value was refused", _CORRECT, "settings"),
    "E10015": _m("a value was refused", _CORRECT, "settings"),
    "E10016": _m(
        "a name that was given is not in the model",
        "Use the names of the ONNX graph; names with ':' or ';' must be renamed when exporting.",
        "model",
    ),
    "E10017": _m("a name that was given is no input", "Use the names of the model's inputs.", "model"),
    "E10018": _m("-1 stands where only the batch may vary", "Use gears of all sizes (--dynamic_dims).", "settings"),
    "E10019": _m("-1 stands where only height and width may vary", _CORRECT, "settings"),
    "E10020": _m("the list of image sizes is malformed", "Write height,width;height,width.", "settings"),
    "E10021": _m("a path is too long", "Use a shorter path for the cache folder.", "files"),
    "E10022": _m("a path names no file", "Add the file's name.", "settings"),
    "E10031": _m("gears for the batch, but no size is -1", _GEARS, "settings"),
    "E10032": _m("a JSON file cannot be read", _FILE, "settings"),
    "E10035": _m(
        "there is a single gear, and at least two are needed", "Name more batches or bins, or use static.", "settings"
    ),
    "E10034": _m("an input is FP16 and goes through AIPP", "Leave one of the two out.", "settings"),
    "E10036": _m("there are too many gears", "Name fewer batches or bins.", "settings"),
    "E10037": _m("gears differ in length", _GEARS, "settings"),
    "E10038": _m("a gear has a size that is not positive", _GEARS, "settings"),
    "E10039": _m("a gear is there twice", _GEARS, "settings"),
    "E10040": _m("gears need -1 in the shapes, and no range (~)", _GEARS, "settings"),
    "E10041": _m(
        "the model file cannot be loaded",
        "Check that it is whole, and that files with its weights lie beside it.",
        "model",
    ),
    "E10042": _m("the model could not be compiled", "The records before this one, in the log, say why.", "compiler"),
    "E10045": _m("there are more -1 in the shapes than sizes in a gear", _GEARS, "settings"),
    "E10046": _m("the number of -1 in the shapes is not that of a gear", _GEARS, "settings"),
    "E10047": _m("two flags exclude each other", "Give one of the two.", "settings"),
    "E10048": _m("a range of sizes is malformed", "Write name:1~8,128 with every input's name.", "settings"),
    "E10049": _m("a shape has more or fewer sizes than the model's input", "Correct the shape.", "model"),
    "E10050": _m("a size lies outside the range that was given", "Correct the shape or the range.", "model"),
    "E10052": _m("the AIPP configuration is invalid", "It is for images; leave it out for texts.", "settings"),
    "E10054": _m("a required flag is empty", _CORRECT, "settings"),
    "E10055": _m("the operation is not supported on this chip", _CORRECT, "settings"),
    "E10056": _m("two flags exclude each other", "Give precision_mode or precision_mode_v2, not both.", "settings"),
    "E10057": _m("two flags belong together", "Mode 6 takes --om and nothing else.", "settings"),
    "E10410": _m("a file that a flag names is missing", _FILE, "settings"),
    "E10501": _m(
        "an operator has no definition in the operator library",
        "Check ASCEND_OPP_PATH and that the operator package of the 910B is installed; else " + _UNSUPPORTED,
        "model",
    ),
    "EZ0501": _m(
        "an operator has no definition in the operator library",
        "Check ASCEND_OPP_PATH and that the operator package of the 910B is installed; else " + _UNSUPPORTED,
        "model",
    ),
    "E11010": _m("an operator's attributes could not be read", _UNSUPPORTED, "model"),
    "E13000": _m("a path does not exist", _FILE, "files"),
    "E13001": _m("a file cannot be opened", _FILE, "files"),
    "E13002": _m("a path is too long", "Use a shorter path for the cache folder.", "files"),
    "E13003": _m("a file cannot be read", _FILE, "files"),
    "E13004": _m("a file cannot be written", "Check rights and free space of the folder.", "disk"),
    "E13005": _m("the model file does not parse", "Export the model again: it is damaged or no ONNX file.", "model"),
    "E13006": _m("a file is not of the expected type", _FILE, "settings"),
    "E13009": _m("two operators have one name", "Give every node of the model a name of its own.", "model"),
    "E13010": _m("an operator of the model is not supported at its opset", _UNSUPPORTED, "model"),
    "E19010": _m("an operator of the model is not supported at its opset", _UNSUPPORTED, "model"),
    "E13014": _m("an operator was given what it does not take", _UNSUPPORTED, "model"),
    "E13018": _m("a text file of protobuf does not parse", _FILE, "settings"),
    "E13024": _m("an environment variable has a value that ATC refuses", "Correct or unset it.", "installation"),
    "E13025": _m("an input of the model is invalid", "Export the model again.", "model"),
    "E13026": _m("a path is invalid", _FILE, "files"),
    "E13031": _m("an output of the model is invalid", "Export the model again.", "model"),
    "E13015": _m(
        "a file is empty or too large",
        "Export the model again; keep its weights in files beside the ONNX file from 2 GB on.",
        "model",
    ),
    "E13023": _m(
        "the compiled model is larger than the format allows", "Use fewer gears, or static files.", "settings"
    ),
    "E14001": _m("an operator was given what it does not take", _UNSUPPORTED, "model"),
    "E14002": _m("an attribute of an operator is missing", _UNSUPPORTED, "model"),
    "E16001": _m("the model has no input or no output", "Export the model again.", "model"),
    "E16002": _m("an operator of the model has no ONNX parser", _UNSUPPORTED, "model"),
    "E16004": _m("the file holds no graph", "Export the model again: it is damaged.", "model"),
    "E16005": _m(
        "the file imports more than one operator set, which ATC does not take",
        "Keep the default opset_import only; use the model as exported, before ONNX Runtime's tools touched it.",
        "model",
    ),
    "E19999": _m("ATC failed inside", "The log has its trace; try precision allow_mix_precision or O1.", "compiler"),
    "E20001": _m(
        "the kernel of an operator could not be compiled",
        "Try another precision mode, or keep that operator's type (compile.keep_dtype).",
        "compiler",
    ),
    "E20002": _m("an environment variable has a value that ATC refuses", "Correct or unset it.", "installation"),
    "E20003": _m("a line of a configuration file was refused", _CORRECT, "settings"),
    "E20007": _m(
        "a fusion pass failed",
        "Put the group of that pass into compile.disabled_fusions; `workbench space` lists the groups.",
        "compiler",
    ),
    "E20101": _m("a value was refused by the compile engine", _CORRECT, "settings"),
    "EE1001": _m("an argument was refused by the runtime", _CORRECT, "settings"),
    "E20103": _m("a value is larger than the chip allows", _CORRECT, "settings"),
    "E21001": _m("a configuration file cannot be opened", _FILE, "files"),
    "E21002": _m("a configuration file does not parse", _CORRECT, "settings"),
    "E22001": _m(
        "the operator compiler ended without a result for an operator",
        "Run it again with fewer compiles side by side; when it stays, look at the log.",
        "memory",
    ),
    "E40020": _m("the operator compiler's Python lacks a module or decorator", _PYTHON, "installation"),
    "E40021": _m(
        "the kernel of an operator could not be compiled",
        "Try another precision mode, or keep that operator's type (compile.keep_dtype).",
        "compiler",
    ),
    "E40024": _m("a call into the operator compiler's Python failed", _PYTHON, "installation"),
    "EZ3002": _m(
        "a kernel library has no form of an operator for these types or shapes",
        "Keep fewer types (compile.keep_dtype), or use precision allow_fp32_to_fp16.",
        "model",
    ),
    "EZ3003": _m(
        "no kernel of the chip takes an operator with these types",
        "Check that the operator package of the 910B is installed; keep fewer types, or use precision "
        "allow_fp32_to_fp16.",
        "model",
    ),
    "EZ9010": _m("an operator of the model has no parser", _UNSUPPORTED, "model"),
    "W11001": _m("an operator runs in a slower library", "Try another precision mode for it.", "compiler"),
    "W11002": _m("names in the weight-compression file are not in the model", "Leave the file out.", "settings"),
    "W11003": _m("an operator lacks a part of its implementation", "Install the operator package.", "installation"),
}

RANGES: tuple[tuple[str, Meaning], ...] = (
    (r"E1002[3-9]|E10030", _m("a file of single operators is invalid", "Models need no --singleop.", "settings")),
    (r"E100[56]\d|E1040\d", _m("a value was refused", _CORRECT, "settings")),
    (r"E110\d\d|E120\d\d", _m("the file was read as a Caffe or TensorFlow model", "Use --framework=5.", "settings")),
    (
        r"E1302[89]|E13030",
        _m("a custom fusion pass failed", "Take custom passes out of ASCEND_OPP_PATH's vendors.", "installation"),
    ),
    (r"E400\d\d", _m("the operator compiler's Python environment is not complete", _PYTHON, "installation")),
    (
        r"E[589]\d{4}",
        _m(
            "an operator refuses a shape, type or format it was given",
            "Try another precision mode or shape; with gears, fewer or smaller ones.",
            "compiler",
        ),
    ),
    (
        r"EB\d{4}",
        _m(
            "the kernel template of an operator failed",
            "Try another precision mode or shape; with gears, fewer or smaller ones.",
            "compiler",
        ),
    ),
    (r"E[ZI]\d{4}", _m("ATC failed inside", "The log has its trace; try another precision mode.", "compiler")),
    (r"E[A-Z0-9]\d{4}", _m("ATC failed", "The log says more; look there for the first error.", "compiler")),
    (r"W[A-Z0-9]\d{4}", _m("ATC warned", "The log says more.", "compiler")),
)
"""Patterns of codes that are not listed one by one, the first that fits."""

_CASES: tuple[tuple[str, str, Meaning], ...] = (
    (
        r"E10001",
        r"(?i)input_shape.*(NULL|-1)|NULL.*input_shape",
        _m(
            "the model has dynamic axes and not every input was given a shape",
            "Name batches and sequence_bins in compile, so that every size is known.",
            "model",
        ),
    ),
    (
        r"E10001",
        r"No such file or directory",
        _m(
            "a file that was named does not exist",
            "Run it again; the cache may have been cleaned meanwhile.",
            "files",
        ),
    ),
    (
        r"E10001|E1300[1-4]",
        r"(?i)permission denied",
        _m("the rights of a file or folder do not suffice", "Give this user read and write rights there.", "disk"),
    ),
    (
        r"E10001",
        r"(?i)can only contain|character|a-z",
        _m(
            "a path has characters that ATC refuses",
            "Use a folder whose path has letters, digits and . / _ - only.",
            "files",
        ),
    ),
    (
        r"E20101|EE1001",
        r"(?i)soc[_ ]?version|platform",
        _m(
            "this CANN does not know the chip that was named",
            "Use the name of `npu-smi info` behind 'Ascend', such as Ascend910B3, and install the operator package of "
            "the 910B.",
            "installation",
        ),
    ),
    (
        r"E20101",
        r"(?i)bf(loat)?16",
        _m("this chip has no bfloat16", "Use a mode with fp16.", "settings"),
    ),
    (
        r"E13010|E16002|EZ9010|E19010",
        r"(?i)(Quantize|Dequantize)Linear|MatMulInteger|ConvInteger|QLinear",
        _m(
            "ONNX's own quantization operators are not what ATC quantizes with",
            "Start from the float model; INT8 reaches ATC as a deploy model with AscendQuant operators.",
            "model",
        ),
    ),
    (
        r"E13010|E16002|EZ9010|E19010",
        r"::(19|2\d)::",
        _m(
            "an operator is looked up at an opset that ATC does not cover (8 to 18)",
            "Export the model with an opset from 11 to 17.",
            "model",
        ),
    ),
    (
        r"E[A-Z0-9]\d{4}",
        r"(?i)\bint64\b|DT_INT64",
        _m(
            "an operator has no kernel for int64",
            "Cast to int32 before that operator, or fold the computation with a simplifier at fixed shape.",
            "model",
        ),
    ),
    (
        r"E[A-Z0-9]\d{4}",
        r"(?i)no space left on device",
        _m("the disk is full", "Free some space; the cache folder is .workbench/.", "disk"),
    ),
    (
        r"E[A-Z0-9]\d{4}",
        r"(?i)out of memory|cannot allocate memory|bad_alloc|MemoryError|failed to allocate",
        _m("the machine's memory did not suffice", "Close other programs, or compile fewer files at once.", "memory"),
    ),
)
"""Code, words of the message, meaning: what the code alone does not tell."""

_NAME = (
    re.compile(r"\bOp(?:name| name)?\b:?\s*\[?([^\s,\[\]]+?)[\].,]*(?=[\s,]|$)"),
    re.compile(r"found for \[?([^\s,\[\]]+?)[\].,]*(?=[\s,]|$)"),
    re.compile(r"\b[Oo]perator \[?([^\s,\[\]]+?)[\].,]*(?=[\s,]|$)"),
    re.compile(r"\bnode \[?([^\s,\[\]]+?)[\].,]*(?=[\s,]|$)"),
)
_TYPE = re.compile(r"(?i)\b(?:op_?\s?type|of type):?\s*\[?\s*([\w.:]*\w)")
_NO_NAMES = frozenset({"type", "optype", "of", "for", "is", "with", "the", "in", "kernel", "input", "shape"})


def meaning_of(message: Message) -> Meaning:
    """What a record means: the special case of its words, else its code, else the family of its code."""
    words = " ".join((message.text, message.title, *message.trace))
    for code, pattern, meaning in _CASES:
        if re.fullmatch(code, message.code) and re.search(pattern, words):
            return meaning
    if message.code in CODES:
        return CODES[message.code]
    return next(meaning for code, meaning in RANGES if re.fullmatch(code, message.code))


def operator_of(message: Message) -> tuple[str, str]:
    """Name and type of the operator that a record names; empty where it names none."""
    for text in (message.text, *message.trace):
        kind = _TYPE.search(text)
        for pattern in _NAME:
            name = pattern.search(text)
            if name is not None and name[1].lower() not in _NO_NAMES:
                return name[1], kind[1] if kind else ""
        if kind is not None:
            return "", kind[1]
    return "", ""


def explain(output: Output) -> Explanation | None:
    """What a failed run comes down to; None where it left no record and no complaint."""
    headline = _headline(output)
    if headline is None:
        if output.complaints:
            return Explanation(
                code="",
                problem="ATC did not understand its command line",
                remedy="This CANN is older than 8.5.0 or not CANN's ATC; run `workbench doctor`.",
                who="installation",
                quoted=output.complaints[0].removeprefix("ERROR: "),
            )
        return None
    meaning = meaning_of(headline)
    operator, kind = operator_of(headline)
    named = [operator_of(Message(code=headline.code, text=line)) for line in headline.trace]
    named += [operator_of(m) for m in output.errors if m is not headline and m.code == headline.code]
    others = tuple(dict.fromkeys(name for name, other in named if name and other and name != operator))
    return Explanation(
        code=headline.code,
        problem=meaning.problem,
        remedy=meaning.remedy,
        who=meaning.who,
        operator=operator,
        type=kind,
        others=others,
        quoted=headline.text,
    )


def _headline(output: Output) -> Message | None:
    """The record that says most: not a generic tail or an inner error where there is another one."""
    tails = ("E10042", "E19999", "EZ9999")
    return next((m for m in output.errors if m.code not in tails), output.errors[0] if output.errors else None)
