"""Texts of the error manager: title, message, possible cause and solution of every code (atc.md §5.4).

Codes, titles and the names of the arguments are the vendor's (error_code.json of runtime v8.5.0 and its counterpart in
ge); the sentences are ours. A code that is not here is dropped, as the vendor's manager drops what is not registered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.cann_emulator.atc.failure import Record


@dataclass(frozen=True, slots=True)
class Entry:
    """One code; `message` names its arguments in braces, an empty cause or solution is not printed."""

    title: str
    message: str
    cause: str = ""
    solution: str = ""


_ARGUMENT = "Invalid_Argument"
_SHAPE = "Invalid_Argument_Tensor_Input_Shape"
_GEARS = "Invalid_Argument_Tensor_Dynamic_Shape"
_NAME = "Invalid_Argument_Operator_Name"
_ONNX = "Invalid_Argument_ONNX_Model_Data"
_UNSUPPORTED = "Not_Supported_Operator"
_PARSE = "File_Operation_Error_Parse"
_PATH = "File_Operation_Error_Invalid_Path"
_OPEN = "File_Operation_Error_Open"
_VARIABLE = "Config_Error_Invalid_Environment_Variable"
_COMPILATION = "Compilation_Error"

_AGAIN = "Correct the argument and start again."
_MANUAL = "See the usage text (atc --help) and the manual."
_STATIC_OR_DYNAMIC = (
    "For a static model leave the dynamic flag out; for gears write -1 where --input_shape is to change."
)
_GEAR_LISTS = "Correct the gears in --dynamic_batch_size, --dynamic_image_size or --dynamic_dims."
_SUPPORT = (
    "Look into the log; a custom operator's own code may be at fault, a built-in one is for the vendor's support."
)

CATALOGUE: Mapping[str, Entry] = {
    "E10001": Entry(_ARGUMENT, "The value {value} of {parameter} is invalid, because {reason}.", "", _AGAIN),
    "E10002": Entry(
        _SHAPE,
        "The value {shape} of --input_shape is invalid: {reason}. The expected form is {sample}.",
        "",
        "Write input_name1:n1,c1,h1,w1;input_name2:n2,c2,h2,w2 with the model's own names and whole numbers.",
    ),
    "E10003": Entry(_ARGUMENT, "The value {value} of --{parameter} is invalid, because {reason}."),
    "E10004": Entry(_ARGUMENT, "The value of --{parameter} is empty.", "", "Give the flag a value."),
    "E10005": Entry(_ARGUMENT, "The value {value} of --{parameter} must be true or false.", "", "Write true or false."),
    "E10006": Entry(_ARGUMENT, "The value {value} of --{parameter} must be 1 or 0.", "", "Write 1 or 0."),
    "E10007": Entry(_ARGUMENT, "--{parameter} is required and must be {support}.", "", _AGAIN),
    "E10008": Entry(
        _ARGUMENT,
        "--weight is empty although --framework is 0 (Caffe).",
        "",
        "Give --weight for a Caffe model, or the right --framework for another one.",
    ),
    "E10009": Entry(
        _GEARS,
        "--dynamic_batch_size, --dynamic_image_size, --input_shape_range and --dynamic_dims exclude each other.",
        "",
        "Keep one of them for a dynamic model and none for a static one.",
    ),
    "E10010": Entry(
        _ARGUMENT, "The value {loglevel} of --log is invalid.", "", "Use debug, info, warning, error or null."
    ),
    "E10011": Entry(
        _SHAPE,
        "The value {shape} of --input_shape is invalid: its dimension {result} is not positive.",
        "",
        "Use positive numbers for a static model; add one of the dynamic flags where a dimension is to change.",
    ),
    "E10012": Entry(
        _SHAPE,
        "--dynamic_batch_size is given, but an input of --input_shape has less than one dimension.",
        "",
        _STATIC_OR_DYNAMIC,
    ),
    "E10013": Entry(_ARGUMENT, "The value {value} of --{parameter} is out of range.", "", _MANUAL),
    "E10014": Entry(_ARGUMENT, "The value {value} of --{parameter} is invalid.", "", _MANUAL),
    "E10015": Entry(_ARGUMENT, "The value {value} of --{parameter} is invalid.", "", _MANUAL),
    "E10016": Entry(
        _NAME,
        "The node {opname} of --{parameter} is not in the model, or the entries are not separated by ';'.",
        "",
        "Use names of nodes that the graph has.",
    ),
    "E10017": Entry(_ARGUMENT, "The node {opname} of --{parameter} is no input of the model."),
    "E10018": Entry(
        _GEARS,
        "The value {shape} of the dimension {index} is invalid: with --dynamic_batch_size only the first dimension of "
        "an input may be -1.",
        "",
        "Give every other dimension of --input_shape its size.",
    ),
    "E10019": Entry(
        _SHAPE,
        "With --dynamic_image_size exactly the height and the width of an input are -1 in --input_shape.",
        "",
        "Write -1 for height and width and a size for every other dimension.",
    ),
    "E10020": Entry(
        _ARGUMENT,
        "The value {dynamic_image_size} of --dynamic_image_size is invalid.",
        "",
        'Write pairs, "height1,width1;height2,width2".',
    ),
    "E10021": Entry(_ARGUMENT, "The path of --{parameter} is longer than {size}.", "", "Use a shorter path."),
    "E10022": Entry(
        _ARGUMENT, "The path {filename} of --{parameter} has no file name.", "", "Add a file name to the path."
    ),
    "E10023": Entry(
        _ARGUMENT,
        "The value {value} of --singleop is invalid.",
        "There is no such file.",
        "Check the path.",
    ),
    "E10024": Entry(
        _ARGUMENT, "The file {value} of --singleop cannot be opened.", "", "Check owner and permissions of the file."
    ),
    "E10025": Entry(
        _ARGUMENT, "The file {realpath} of --singleop is no valid JSON: {errmsg}.", "", "Correct the file."
    ),
    "E10031": Entry(
        _SHAPE,
        "--dynamic_batch_size is given, but no input of --input_shape has -1 as its first dimension.",
        "At least one input needs a first dimension of -1.",
        _STATIC_OR_DYNAMIC,
    ),
    "E10032": Entry(_PARSE, "The JSON file {file_name} cannot be parsed: {reason}.", "", "Correct the file."),
    "E10034": Entry(
        _ARGUMENT,
        "The input {opname} is both FP16 and the input of AIPP.",
        "",
        "Take it out of --input_fp16_nodes, or leave --insert_op_conf out.",
    ),
    "E10035": Entry(_GEARS, "There are {shapesize} gears, less than {minshapesize}.", "", _GEAR_LISTS),
    "E10036": Entry(_GEARS, "There are {shapesize} gears, more than {maxshapesize}.", "", _GEAR_LISTS),
    "E10037": Entry(
        _GEARS,
        "The gears differ in length: one has {shapesize1} values, another {shapesize2}.",
        "",
        _GEAR_LISTS,
    ),
    "E10038": Entry(_GEARS, "The value {dim} of a gear is not positive.", "", _GEAR_LISTS),
    "E10039": Entry(_GEARS, "Two gears are the same.", "", _GEAR_LISTS),
    "E10040": Entry(
        _SHAPE,
        "With --dynamic_batch_size, --dynamic_image_size or --dynamic_dims an --input_shape has -1 where it changes, "
        "and no '~'.",
        "",
        f"{_STATIC_OR_DYNAMIC} For a range leave the dynamic flag out and keep n1~n2.",
    ),
    "E10041": Entry(
        "Invalid_Argument_Model",
        "The model {parameter} cannot be loaded.",
        "",
        "Check that the file is whole, that its external weights are there, and that --framework fits.",
    ),
    "E10042": Entry(
        _ARGUMENT, "The offline model cannot be generated.", "", "Look at the other messages and into the log."
    ),
    "E10045": Entry(
        _GEARS, "The input {name} of shape {shape} has more open axes than a gear has values left.", "", _GEAR_LISTS
    ),
    "E10046": Entry(
        _GEARS, "The input {name} of shape {shape} has more open axes than a gear has values.", "", _GEAR_LISTS
    ),
    "E10047": Entry(_ARGUMENT, "--{parameter0} and --{parameter1} exclude each other.", "", "Leave one of them out."),
    "E10048": Entry(
        _ARGUMENT,
        "The value {shape_range} of a shape range is invalid: {reason}. The expected form is {sample}.",
        "",
        _AGAIN,
    ),
    "E10049": Entry(
        _SHAPE,
        "--input_shape gives {shape_range_size} dimensions, but the input has {cur_dim_size}.",
        "",
        "Give as many dimensions as the input has.",
    ),
    "E10050": Entry(
        "Invalid_Argument_Tensor_Input_Shape_Range",
        "The dimension {cur_dim} lies outside {shape_range_left}..{shape_range_right} of --input_shape.",
        "",
        "Fit the range to the model.",
    ),
    "E10052": Entry(_ARGUMENT, "The AIPP configuration is invalid: {reason}."),
    "E10054": Entry(
        _ARGUMENT,
        "The required parameter {parameter} is empty. The value of another one may lack its quotation marks.",
        "",
        "Check the form of the command line.",
    ),
    "E10055": Entry(
        "Not_Supported",
        "The operation is not supported: {reason}.",
        "",
        "Check that the parameters and functions in use are supported.",
    ),
    "E10056": Entry(
        _ARGUMENT,
        "The parameters {parameter1} and {parameter2} cannot be given together.",
        "",
        "Keep one of the two; the manual says what each is for.",
    ),
    "E10057": Entry(
        _ARGUMENT,
        "--{parameter0} and --{parameter1} belong together.",
        "",
        "With --mode=6 give --om and nothing else.",
    ),
    "E10410": Entry(
        "File_Operation_Error_File_Not_Exist",
        "The file {cfgpath} does not exist.",
        "--keep_dtype or --compress_weight_conf names a file that is not there.",
        "Correct the path.",
    ),
    "E10501": Entry(
        _UNSUPPORTED,
        "No prototype is registered for the operator {opname} of type {optype}.",
        "ASCEND_OPP_PATH is not set, or the prototype is missing.",
        "Set the environment up, or register the operator.",
    ),
    "EZ0501": Entry(
        _UNSUPPORTED,
        "No prototype is registered for the operator {opname} of type {optype}.",
        "ASCEND_OPP_PATH is not set, or the prototype is missing.",
        "Set the environment up, or register the operator.",
    ),
    "E13000": Entry(_PATH, "The path {path} is empty: {errmsg}.", "There is no such file.", "Correct the path."),
    "E13001": Entry(_OPEN, "The file {file} cannot be opened: {errmsg}.", "", "Act on the reason given."),
    "E13002": Entry(
        "Directory_Operation_Error_Name_Too_Long",
        "The folder {filepath} is longer than {size} characters.",
        "",
        "Use a shorter path.",
    ),
    "E13003": Entry(
        "File_Operation_Error_Read",
        "The file {file} cannot be read: {errmsg}.",
        "Reading failed.",
        "Act on the reason given.",
    ),
    "E13004": Entry("File_Operation_Error_Write", "The file {file} cannot be written: {errmsg}."),
    "E13005": Entry(
        _PARSE,
        "The file {file} cannot be parsed.",
        "",
        "Check that the file is whole and that --framework fits it.",
    ),
    "E13006": Entry(_PARSE, "The file {file} is of type {current_type}, not {expect_type}."),
    "E13009": Entry(_NAME, "The name {opname} is taken by another operator of the graph.", "", "Use distinct names."),
    "E13010": Entry(
        _UNSUPPORTED,
        "No plugin is registered for the operator {opname} of type {optype}.",
        "",
        "Register what a custom operator needs; for a built-in one install a package that has it at this version.",
    ),
    "E13015": Entry("File_Operation_Error_Invalid_File_Size", "The file {file} has {size} bytes of (0, {maxsize}]."),
    "E13023": Entry(
        "Invalid_Argument_OM_Model_Size",
        "{item} has {size} bytes, over the limit of {maxsize} bytes.",
        "The offline model is too large for its file.",
        "Make the model smaller.",
    ),
    "E13025": Entry(_ARGUMENT, "The input tensor is invalid: {reason}."),
    "E14001": Entry(
        "Invalid_Argument_Operator_Compilation_Parameter",
        "The argument {value} of the operator {opname} of type {optype} is invalid: {reason}.",
        "",
        "Check type, inputs and outputs of the operator.",
    ),
    "E14002": Entry(
        "Invalid_Argument_Tensor_Attribute",
        "The attribute {attribute} cannot be had: {reason}.",
        "",
        "Set the attribute of the operator.",
    ),
    "E16001": Entry(_ONNX, "The model has no {value}.", "", "Check that the ONNX graph has inputs and outputs."),
    "E16002": Entry(
        _ONNX,
        "No ONNX parser is registered for the type {optype}.",
        "",
        "Check the version of the installed packages.",
    ),
    "E16004": Entry(_ONNX, "The ONNX model has no graph.", "", "Export the model again."),
    "E16005": Entry(
        _ONNX,
        "The model imports {domain_version_size} opset domains, only one is allowed.",
        "",
        "Where a node names no domain the model may import only one: remove the others from opset_import.",
    ),
    "E19999": Entry(
        "Inner_Error",
        "An unknown error occurred, see the log.",
        "The program ended without a message of its own.",
        "Collect the logs of the time of the fault.",
    ),
    "E20001": Entry(
        _COMPILATION,
        "The operator {pass_name} of type {pass_type} failed to compile.",
        "An argument of the operator is invalid, or its implementation is at fault.",
        _SUPPORT,
    ),
    "E20002": Entry(
        _VARIABLE, "The value {value} of the environment variable {env} is invalid: {reason}.", "", "Set it anew."
    ),
    "E20003": Entry(
        "Config_Error",
        "The item {parameter} of the configuration file {filepath} is invalid: {reason}.",
        "The file's content or form is not what the manual describes.",
        "Correct the file.",
    ),
    "E20007": Entry(
        "Compilation_Error_Execute_Fusion_Pass",
        "The graph fusion pass {pass_name} of type {pass_type} failed.",
        "The graph is beyond what the pass can treat.",
        _SUPPORT,
    ),
    "E20101": Entry(
        _ARGUMENT,
        "The value {value} of {parameter} is invalid, because {reason}.",
        "",
        "Adjust the parameter as the manual says.",
    ),
    "E20103": Entry(_ARGUMENT, "The value {value} of {parameter} is invalid: it must lie in (0, {range}]."),
    "E21001": Entry(
        _OPEN,
        "The file {file_name} cannot be opened.",
        "It does not exist, its permissions forbid it, or the installation is damaged.",
        "Correct the path or the permissions, or install again.",
    ),
    "E21002": Entry(
        _PARSE,
        "The file {file_name} cannot be parsed: {reason}.",
        "The form of the file is wrong.",
        "Correct the file.",
    ),
    "E22001": Entry(
        _COMPILATION,
        "There is no result of the compilation of the operator {opname} of type {optype}.",
        "The compiler of the operator ended abnormally.",
        "Find out why it ended; memory is the usual reason.",
    ),
    "E40001": Entry(
        _VARIABLE,
        "The value {value} of the environment variable {env} is invalid when {situation}: {reason}.",
        "",
        "Set it anew.",
    ),
    "E40002": Entry(
        "Environment_Error_Incorrect_Python_Version",
        "Python {currentVersion} is not supported, {supportVersion} or later is.",
        "The operator compiler found an older Python.",
        "Install a supported Python.",
    ),
    "E40003": Entry(
        _OPEN,
        "The JSON file {file_name} cannot be opened.",
        "It was deleted, locked, or its permissions forbid it.",
        "Run again where nobody else uses the file.",
    ),
    "E40020": Entry(
        "Environment_Error_Import_Python_Module_Failed",
        "The Python module {result} cannot be imported: {reason}.",
        "A module that the operator compiler needs is not installed.",
        "Install it, or source set_env.sh so that it is found.",
    ),
    "E40021": Entry(
        _COMPILATION,
        "The operator {op_name} failed to compile; its path is {opp_path}, its type {op_type}.",
        "",
        "See the log and the Python stack in it.",
    ),
    "E40022": Entry(_ARGUMENT, "The value {invalid_value} of {argument} is invalid, it must be {valid_range}."),
    "E40023": Entry(_PATH, "The path {path} of {arg} is invalid: {result}, {reason}."),
    "E40024": Entry(
        "Environment_Error_Call_Python_Function_Failed",
        "The Python function {func_name} failed: {reason}.",
        "There is no such function.",
        "Check the installation and its environment.",
    ),
    "EE1001": Entry(
        _ARGUMENT,
        "An argument is invalid: {extend_info}.",
        "",
        "Use one of the supported SoC versions, such as Ascend910B3.",
    ),
    "EZ3002": Entry(
        "Unsupported_Operator",
        "The type {optype} is not supported by the kernel library {opskernel}: {reason}.",
        "The library does not have the operator for these types or shapes.",
        "Replace the operator in the model.",
    ),
    "EZ3003": Entry(
        "Unsupported_Operator",
        "No kernel library and no engine has the operator {opname} of type {optype}.",
        "The chip does not have the operator, or not for its types.",
        "Check the installed operator packages, or replace the operator.",
    ),
    "EZ9010": Entry(
        _UNSUPPORTED,
        "No parser is registered for the operator {opname} of type {optype}.",
        "",
        "Check the installed operator packages, or replace the operator.",
    ),
    "W11001": Entry(
        "Performance_Not_Optimal_Operator",
        "The operator {opname} is not in the library of high priority and may be slow.",
        "The operator has no fast kernel for its types.",
        "Try another precision mode, or replace the operator.",
    ),
    "W11002": Entry(
        "Config_Error_Weight_Configuration",
        "Some names in the file {filename} are not in the graph: {opnames}.",
        "",
        "Check that the file belongs to the model.",
    ),
    "W11003": Entry(
        "Config_Error_Operator_Missing_Implementation",
        "The operator type {optype} has no {func}.",
        "The operator is not complete.",
        "Provide what is missing.",
    ),
}

_FAMILIES: tuple[tuple[re.Pattern[str], Entry], ...] = (
    # checks of single operators, whose codes no open catalogue lists one by one
    (re.compile(r"E5\d{4}|EB\d{4}"), Entry(_ARGUMENT, "The operator {opname} is invalid: {reason}.", "", _AGAIN)),
    (re.compile(r"E9000\d"), Entry(_COMPILATION, "The operator {opname} failed to compile: {reason}.", "", _SUPPORT)),
)
_INNER = re.compile(r".*(9999|8888)")


def is_inner(code: str) -> bool:
    """Whether a code reports a fault of the tool itself, which never becomes the headline beside others."""
    return bool(_INNER.fullmatch(code))


def entry_of(code: str) -> Entry | None:
    """The texts of a code; None where it is not registered."""
    if code in CATALOGUE:
        return CATALOGUE[code]
    return next((entry for pattern, entry in _FAMILIES if pattern.fullmatch(code)), None)


def message_of(record: Record) -> str | None:
    """The message with the record's arguments; None of a code that is not registered.

    An inner error carries its own text as the argument `message`. An argument that the record lacks stays in braces.
    """
    if is_inner(record.code) and "message" in record.arguments:
        return record.arguments["message"]
    entry = entry_of(record.code)
    return None if entry is None else entry.message.format_map(_Named(record.arguments))


class _Named(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"
