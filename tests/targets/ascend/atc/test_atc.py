"""Runs of programs that play an atc, on paths that it takes, and what output and codes mean (atc.md §5, §8)."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference_pages import atc_codes
from tests.targets.ascend.played_atc import play
from workbench.targets.ascend.atc.atc import Run, compile_environment, failure_of, run_atc
from workbench.targets.ascend.atc.codes import Message, explain, meaning_of, parse_output, table
from workbench.values.errors import CompileError, ToolchainError


def ran(tmp_path: Path, body: str, **flags: str) -> Run:
    environment = play(tmp_path, "atc", body) | {"HOME": str(tmp_path)}
    return run_atc({"framework": "5", **flags}, directory=tmp_path, log=tmp_path / "atc.log", base=environment)


def test_a_program_that_prints_without_end_is_stopped_and_a_launcher_tells_a_kill(tmp_path: Path) -> None:
    for body, transient, words in (
        ("yes 'garbage of a program that is no atc'", False, "MiB"),
        ("exit 137", True, "was killed by SIGKILL"),
    ):
        error = failure_of(ran(tmp_path, body), "the model", "")
        assert isinstance(error, CompileError)
        assert (error.transient, error.log_path) == (transient, tmp_path / "atc.log")
        assert words in str(error)
        assert f"Reproduce: {tmp_path}/bin/atc --framework=5" in str(error)


def test_trouble_of_the_machine_or_the_installation_stops_everything(tmp_path: Path) -> None:
    refused = "echo 'E13004: Failed to write file m.om. Reason: "
    for body, words in (
        (f"{refused}No space left on device'; exit 255", "Free some space"),
        (f"{refused}Permission denied'; exit 255", "write rights"),
        ("echo 'E40020: [PID: 4] Failed to import numpy'; exit 255", "set_env.sh"),
        ("echo 'ERROR: unknown command line flag'; exit 255", "workbench doctor"),
        ("echo 'atc.bin: error while loading shared libraries: libge.so: no'; exit 127", "libge.so"),
    ):
        error = failure_of(ran(tmp_path, body), "the model", "")
        assert isinstance(error, ToolchainError)
        assert words in str(error)


def test_a_log_is_completed_with_what_goes_away(tmp_path: Path) -> None:
    switch = tmp_path / "switch.cfg"
    switch.write_text('{"Switch": {}}')
    body = "mkdir -p log/debug; echo '[ERROR] GE(1): why' > log/debug/plog-1.log; exit 1"

    failure_of(ran(tmp_path, body, fusion_switch_file=str(switch)), "the model", "")

    log = (tmp_path / "atc.log").read_text()
    for words in (f"$ cd {tmp_path}", '{"Switch": {}}', "[ERROR] GE(1): why"):
        assert words in log


def test_what_no_key_holds_does_not_reach_atc_and_operator_compilers_are_bounded(tmp_path: Path) -> None:
    outside = ("ASCEND_WORK_PATH", "TUNE_BANK_PATH", "ASCEND_CUSTOM_OPP_PATH", "ENABLE_WHATEVER")
    assert compile_environment({**dict.fromkeys(outside, "/elsewhere"), "HOME": "/h"}, tmp_path, workers=2) == {
        "HOME": "/h",
        "ASCEND_PROCESS_LOG_PATH": str(tmp_path / "log"),
        "TE_PARALLEL_COMPILER": "2",
    }
    for asked, workers, bounded in (("1", 4, "1"), ("64", 48, "32"), ("x", 99, "8")):
        base = {"TE_PARALLEL_COMPILER": asked}
        assert compile_environment(base, tmp_path, workers=workers)["TE_PARALLEL_COMPILER"] == bounded


def test_every_code_of_the_reference_page_and_of_the_table_has_a_cause_and_a_remedy() -> None:
    for code in atc_codes() | {row.code for row in table() if row.code.isalnum()}:
        meaning = meaning_of(Message(code=code, text="something"))
        assert meaning.problem not in ("", "ATC failed", "ATC warned"), f"{code}: only codes that nobody listed"
        assert meaning.remedy.endswith("."), code


def test_the_words_of_a_record_tell_more_than_its_code() -> None:
    """atc.md §8: failures seen with BERT-like models."""
    invalid = "Value {} for {} is invalid. Reason: {}"
    for code, text, problem, remedy in (
        ("E10001", invalid.format("NULL", "parameter --input_shape", "contains -1"), "dynamic axes", "batches"),
        ("E10001", invalid.format("[NULL]", "parameter [input_shape]", "[maybe]"), "dynamic axes", "sequence_bins"),
        ("E10001", invalid.format("/w/a b.onnx", "--model", "can only contain 'a-z'"), "refuses", "letters"),
        ("E10001", invalid.format("/w/m", "--model", "No such file or directory"), "does not exist", "again"),
        ("E16005", "The model has 2 --domain_version fields", "more than one operator set", "default opset_import"),
        ("E13010", "Op: a, optype: ai.onnx::13::QuantizeLinear.", "quantization operators", "float model"),
        ("E13010", "Op: a, optype: ai.onnx::20::Gelu.", "opset", "11 to 17"),
        ("EZ3003", "found for [s], optype [ScatterNd]. int64 is not supported", "no kernel for int64", "int32"),
        ("E20101", invalid.format("Ascend9", "ge.socVersion", "no platform file"), "chip", "npu-smi"),
        ("E20101", invalid.format("x", "precision", "bfloat16 not supported by this soc"), "bfloat16", "fp16"),
        ("E40020", "Failed to import Python module numpy", "Python", "requirements"),
        ("E13004", "Failed to write file m.om. Reason: No space left on device.", "disk is full", "space"),
        ("E19999", "std::bad_alloc", "memory", "fewer"),
    ):
        meaning = meaning_of(Message(code=code, text=text))
        assert problem in meaning.problem
        assert remedy in meaning.remedy


NEW = """\
ATC start working now, please wait for a moment.
....
...
ATC run failed, Please check the detail log, Try 'atc --help' for more information
[PID: 812] 2026-01-02-03:04:05.006.007 Not_Supported_Operator(E13010): No operator plugin is registered for Op: \
gelu_0, optype: ai.onnx::20::Gelu.
        Possible Cause: The operator is new.
        Solution: 1. If the operator is a custom operator, register related deliverables.
2. If the operator is a built-in operator, install the package that supports this operator version.
        TraceBack (most recent call last):
        No operator plugin is registered for Op: gelu_1, optype: ai.onnx::20::Gelu.
        Parse model failed.

"""

OLD = """\
ATC start working now, please wait for a moment.
ATC run failed, Please check the detail log, Try 'atc --help' for more information
E10016: [PID: 7] 2023-05-06-07:08:09.100.200 Opname [input_idz] specified in [--input_shape] is not found in the model.
        Solution: Specify the name of an existing node in the graph.
        TraceBack (most recent call last):
        Check input shape failed.[FUNC:f][FILE:g.cc][LINE:3]

"""


def test_both_layouts_are_read_and_every_operator_with_the_trouble_is_quoted() -> None:
    output = parse_output(NEW)

    gelus = [f"No operator plugin is registered for Op: gelu_{n}, optype: ai.onnx::20::Gelu." for n in (0, 1)]
    (message,) = output.errors
    trace = (gelus[1], "Parse model failed.")
    assert message == Message(code="E13010", title="Not_Supported_Operator", text=gelus[0], trace=trace)
    assert (output.warnings, output.complaints) == ((), ())
    found = explain(output)
    assert found is not None
    assert (found[0], found[1].who, found[2]) == ("E13010", "model", " ".join((gelus[0], *trace)))
    (message,) = parse_output(OLD).errors
    assert message.code == "E10016"
    assert message.text.startswith("Opname [input_idz] specified in")
    assert message.trace == ("Check input shape failed.[FUNC:f][FILE:g.cc][LINE:3]",)


def test_an_inner_error_takes_its_words_from_the_records_behind_it() -> None:
    """If all are inner, `<Code>: Inner Error!` and then the records: error_manager.cc:549-565 of runtime v8.5.0."""
    time = "2026-01-02-03:04:05.006.007"
    for head in (f"E19999[PID: 3] {time} (E19999):  ", f"E19999: [PID: 3] {time} "):  # 8.5 and 8.1
        (message,) = parse_output(
            "ATC run failed, Please check the detail log\nE19999: Inner Error!\n"
            f"{head}domain ai.onnx is not imported[FUNC:x]\n"
            "        TraceBack (most recent call last):\n       Parse failed\n\n"
        ).errors
        assert message.text == "Inner Error! domain ai.onnx is not imported[FUNC:x]"
        assert message.trace == ("Parse failed",)


@given(
    st.one_of(
        st.text(),
        st.binary().map(lambda data: data.decode("utf-8", errors="replace")),
        st.lists(st.sampled_from([*NEW.splitlines(), *OLD.splitlines(), "", "E10001:", "(E10001): "])).map("\n".join),
    )
)
@settings(deadline=None)
def test_no_text_is_too_strange(text: str) -> None:
    output = parse_output(text)

    assert all(message.code for message in (*output.errors, *output.warnings))
