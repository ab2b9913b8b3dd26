"""atc.md §5.4: every code with its title and arguments, and every record that the emulator raises against them."""

import ast
import re
import string
from pathlib import Path

import pytest

import workbench.cann_emulator.atc as atc
from workbench.cann_emulator.atc.failure import Record, catalogue, entry_of, is_inner, message_of

# The reference's table, code by code: the arguments it names in order ("-" none), the title where it gives one.
SECTION_5_4 = """
E10001 value parameter reason        Invalid_Argument
E10002 shape reason sample           Invalid_Argument_Tensor_Input_Shape
E10003 value parameter reason        Invalid_Argument
E10004 parameter                     Invalid_Argument
E10005 value parameter               Invalid_Argument
E10006 value parameter               Invalid_Argument
E10007 parameter support             Invalid_Argument
E10008 -                             Invalid_Argument
E10009 -                             Invalid_Argument_Tensor_Dynamic_Shape
E10010 loglevel                      Invalid_Argument
E10011 shape result                  Invalid_Argument_Tensor_Input_Shape
E10012 -                             Invalid_Argument_Tensor_Input_Shape
E10013 value parameter               Invalid_Argument
E10014 value parameter               Invalid_Argument
E10015 value parameter               Invalid_Argument
E10016 opname parameter              Invalid_Argument_Operator_Name
E10017 opname parameter              Invalid_Argument
E10018 shape index                   Invalid_Argument_Tensor_Dynamic_Shape
E10019 -                             Invalid_Argument_Tensor_Input_Shape
E10020 dynamic_image_size            Invalid_Argument
E10021 parameter size                Invalid_Argument
E10022 filename parameter            Invalid_Argument
E10031 -                             Invalid_Argument_Tensor_Input_Shape
E10032 file_name reason              File_Operation_Error_Parse
E10035 shapesize minshapesize        Invalid_Argument_Tensor_Dynamic_Shape
E10036 shapesize maxshapesize        Invalid_Argument_Tensor_Dynamic_Shape
E10037 shapesize1 shapesize2         Invalid_Argument_Tensor_Dynamic_Shape
E10038 dim                           Invalid_Argument_Tensor_Dynamic_Shape
E10039 -                             Invalid_Argument_Tensor_Dynamic_Shape
E10040 -                             Invalid_Argument_Tensor_Input_Shape
E10041 parameter                     Invalid_Argument_Model
E10042 -                             Invalid_Argument
E10045 name shape                    Invalid_Argument_Tensor_Dynamic_Shape
E10046 name shape                    Invalid_Argument_Tensor_Dynamic_Shape
E10047 parameter0 parameter1         Invalid_Argument
E10048 shape_range reason sample     Invalid_Argument
E10049 shape_range_size cur_dim_size Invalid_Argument_Tensor_Input_Shape
E10050 cur_dim shape_range_left shape_range_right Invalid_Argument_Tensor_Input_Shape_Range
E10052 reason                        Invalid_Argument
E10054 parameter                     Invalid_Argument
E10055 reason                        Not_Supported
E10056 parameter1 parameter2         Invalid_Argument
E10057 parameter0 parameter1         Invalid_Argument
E10410 cfgpath                       File_Operation_Error_File_Not_Exist
E10501 opname optype                 Not_Supported_Operator
EZ0501 opname optype                 Not_Supported_Operator
E13000 path errmsg                   File_Operation_Error_Invalid_Path
E13001 file errmsg                   File_Operation_Error_Open
E13002 filepath size                 Directory_Operation_Error_Name_Too_Long
E13003 file errmsg                   File_Operation_Error_Read
E13004 file errmsg                   File_Operation_Error_Write
E13005 file                          File_Operation_Error_Parse
E13006 file current_type expect_type File_Operation_Error_Parse
E13009 opname                        Invalid_Argument_Operator_Name
E13010 opname optype                 Not_Supported_Operator
E13015 file size maxsize             File_Operation_Error_Invalid_File_Size
E13023 item size maxsize             Invalid_Argument_OM_Model_Size
E14001 value opname optype reason    Invalid_Argument_Operator_Compilation_Parameter
E14002 attribute reason              Invalid_Argument_Tensor_Attribute
E16001 value                         Invalid_Argument_ONNX_Model_Data
E16002 optype                        Invalid_Argument_ONNX_Model_Data
E16004 -                             Invalid_Argument_ONNX_Model_Data
E16005 domain_version_size           Invalid_Argument_ONNX_Model_Data
E19999 -                             Inner_Error
E20001 pass_name pass_type           Compilation_Error
E20002 value env reason              Config_Error_Invalid_Environment_Variable
E20003 parameter filepath reason     Config_Error
E20007 pass_name pass_type           Compilation_Error_Execute_Fusion_Pass
E20101 value parameter reason        Invalid_Argument
E20103 value parameter range         Invalid_Argument
E21001 file_name                     File_Operation_Error_Open
E21002 file_name reason              File_Operation_Error_Parse
E22001 opname optype                 Compilation_Error
E40001 value env situation reason    Config_Error_Invalid_Environment_Variable
E40002 currentVersion supportVersion Environment_Error_Incorrect_Python_Version
E40003 file_name                     File_Operation_Error_Open
E40020 result reason                 Environment_Error_Import_Python_Module_Failed
E40021 op_name opp_path op_type      Compilation_Error
E40022 invalid_value argument valid_range Invalid_Argument
E40023 path arg result reason        File_Operation_Error_Invalid_Path
E40024 func_name reason              Environment_Error_Call_Python_Function_Failed
EZ3002 optype opskernel reason       Unsupported_Operator
EZ3003 opname optype                 Unsupported_Operator
EZ9010 opname optype                 Not_Supported_Operator
W11001 opname                        Performance_Not_Optimal_Operator
W11002 filename opnames              Config_Error_Weight_Configuration
W11003 optype func                   Config_Error_Operator_Missing_Implementation
"""
ROWS = [
    (words[0], {w for w in words[1:-1] if w != "-"}, words[-1])
    for words in map(str.split, SECTION_5_4.split("\n")[1:-1])
]


def arguments_of(message: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(message) if name}


@pytest.mark.parametrize(("code", "arguments", "title"), ROWS, ids=[row[0] for row in ROWS])
def test_every_code_of_the_reference_is_in_the_catalogue(code: str, arguments: set[str], title: str) -> None:
    entry = entry_of(code)

    assert entry is not None
    assert arguments_of(entry.message) == arguments
    assert entry.title == title
    assert "N/A" not in entry.cause + entry.solution


def test_the_catalogue_has_nothing_that_is_in_no_reference() -> None:
    """Beyond the table: what --singleop, AIPP and the runtime report, and a wrong input (error_code.json of both)."""
    beyond = {"E10023", "E10024", "E10025", "E10034", "E13025", "EE1001"}

    assert set(catalogue()) == {code for code, _, _ in ROWS} | beyond


@pytest.mark.parametrize("code", ["E50001", "E90003", "EB0001"])
def test_families_of_operator_checks_are_known_as_such(code: str) -> None:
    assert message_of(Record(code=code, arguments={"opname": "a", "reason": "b"})) is not None


@pytest.mark.parametrize("code", ["E11010", "E99998", "X1"])
def test_a_code_that_is_not_registered_has_no_message(code: str) -> None:
    """§5.4: E11010 is not in the catalogue, so it only appears in the log."""
    assert message_of(Record(code=code)) is None


def test_inner_errors_carry_their_own_text() -> None:
    assert is_inner("E19999")
    assert is_inner("EZ9999")
    assert is_inner("E18888")
    assert not is_inner("E10001")
    assert message_of(Record(code="E19999", arguments={"message": "it broke"})) == "it broke"
    assert message_of(Record(code="E19999")) == catalogue()["E19999"].message


def test_values_with_braces_are_printed_as_they_are() -> None:
    record = Record(code="E10003", arguments={"value": "{x}", "parameter": "a", "reason": "{0}"})

    assert message_of(record) == "The value {x} of --a is invalid, because {0}."


def raised_records() -> list[tuple[str, str, set[str]]]:
    """(place, code, names of arguments) of every literal failure("…", …) and Record(code="…", arguments={…})."""
    found = []
    for file in sorted(Path(atc.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            place = f"{file.name}:{node.lineno}"
            named = {k.arg: k.value for k in node.keywords if k.arg}
            if len(named) != len(node.keywords):
                continue
            if node.func.id == "failure" and node.args and isinstance(node.args[0], ast.Constant):
                found.append((place, str(node.args[0].value), set(named)))
            elif node.func.id == "Record" and isinstance(named.get("code"), ast.Constant):
                given = named.get("arguments")
                if given is None or isinstance(given, ast.Dict):
                    keys = given.keys if isinstance(given, ast.Dict) else []
                    if all(isinstance(key, ast.Constant) for key in keys):
                        found.append((place, str(named["code"].value), {str(key.value) for key in keys}))
    return found


def test_every_record_that_is_raised_has_the_catalogues_arguments() -> None:
    records = raised_records()
    assert len(records) > 60
    for place, code, arguments in records:
        entry = entry_of(code)
        assert entry is not None, f"{place}: {code} is in no catalogue"
        wanted = arguments_of(entry.message)
        allowed = wanted | {"message"} if is_inner(code) else wanted
        assert wanted <= arguments <= allowed, f"{place}: {code} needs {sorted(wanted)}, has {sorted(arguments)}"


def test_the_texts_are_sentences() -> None:
    for code, entry in catalogue().items():
        for text in filter(None, (entry.message, entry.cause, entry.solution)):
            assert re.fullmatch(r"[A-Z{-].*[.]", text), f"{code}: {text}"
