"""The target and the emulator read the vendor's contract apart from each other; here they are held together."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.targets.ascend.offline_files import BERT
from workbench.cann_emulator.atc import checks
from workbench.cann_emulator.atc.boundary import parse_output_type
from workbench.cann_emulator.atc.console import error_lines, warning_lines
from workbench.cann_emulator.atc.failure import Record, catalogue
from workbench.cann_emulator.atc.flags import known_flags, parse
from workbench.cann_emulator.atc.fusion import read_switches
from workbench.cann_emulator.atc.gears import plan_shapes, read_requests
from workbench.cann_emulator.atc.precision_files import read_precision
from workbench.cann_emulator.atc.shapes import parse_ranges
from workbench.targets.ascend.atc.codes import meaning_of, operator_of, parse_output
from workbench.targets.ascend.atc.command import argument_vector, compile_flags, shapes_of
from workbench.targets.ascend.config_files import FUSION_GROUPS, PRECISION_KINDS
from workbench.targets.ascend.flags import REACHED
from workbench.targets.ascend.om_set import write_config_files
from workbench.targets.ascend.settings import ALL_PRECISION_MODES, AscendCompile
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import ConfigError

OPERATORS = ("Gelu", "SoftmaxV2", "LayerNorm", "Add", "MatMulV2")


def emulated(flags: Mapping[str, str]) -> dict[str, str]:
    """The options that the emulated atc reads from a command line, once it accepts them."""
    options = parse(argument_vector(flags), known_flags((8, 5, 0)))
    checks.check_withdrawn(options)
    checks.check_framework(options)
    checks.check_conversion(options, lambda _: None)
    checks.check_optimization_flags(options)
    requests = read_requests(options)
    if requests.ranges:
        parse_ranges(requests.ranges)
    if options.get("output_type") and not requests.out_nodes.tensors:
        parse_output_type(options["output_type"], requests.out_nodes.nodes)
    if requests.gear_flag:
        # names are the model's business: this one has what the command line says
        boundary = dict(requests.shapes)
        plan_shapes(boundary, requests, input_format=options.get("input_format", "NCHW"), quantized=False)
    return dict(options)


def test_both_know_the_same_flags() -> None:
    assert set(REACHED) - {"help"} == set(known_flags((8, 5, 0)))  # help is the emulated grammar's own


def subsets(*names: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sets(st.sampled_from(names)).map(lambda chosen: tuple(sorted(chosen)))


def sizes(*values: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.sets(st.sampled_from(values), min_size=1).map(lambda chosen: tuple(sorted(chosen)))


@st.composite
def candidates(draw: st.DrawFn) -> Candidate | None:
    """What a search may propose; None where `Candidate` itself refuses the combination."""
    groups = [name for name, group in FUSION_GROUPS.items() if group.on]
    others = [name for name, group in FUSION_GROUPS.items() if not group.on]
    try:
        made = AscendCompile(
            batches=draw(sizes(1, 2, 8, 16)),
            sequence_bins=draw(sizes(16, 64, 128)),
            shapes=draw(st.sampled_from(("static", "gears"))),
            disabled_fusions=draw(subsets(*groups)),
            enabled_fusions=draw(subsets(*others)),
            op_select_implmode=draw(st.sampled_from((None, "high_performance", "high_precision"))),
            optypelist_for_implmode=draw(subsets(*OPERATORS)),
            op_precision_mode=draw(
                st.dictionaries(st.sampled_from(OPERATORS), st.sampled_from(PRECISION_KINDS)).map(
                    lambda modes: tuple(f"{kind}={mode}" for kind, mode in modes.items())
                )
            ),
            modify_mixlist=draw(
                st.dictionaries(
                    st.sampled_from(OPERATORS),
                    st.sampled_from(
                        (
                            ("black-list.to-add",),
                            ("white-list.to-add", "black-list.to-remove"),
                            ("gray-list.to-add", "white-list.to-remove"),
                            ("black-list.to-remove",),
                        )
                    ),
                ).map(lambda said: tuple(f"{place}:{kind}" for kind, places in said.items() for place in places))
            ),
            keep_dtype=draw(subsets("OpType::LayerNorm", "OpType::SoftmaxV2", "/layer.0/MatMul", "node a")),
            customize_dtypes=draw(
                st.dictionaries(
                    st.sampled_from(("OpType::Gelu:", "/layer.0/Add::", "x::")),
                    st.sampled_from(("bfloat16", "float", "float16", "int64", "int8")),
                ).map(lambda types: tuple(f"{k}InputDtype:{t},,OutputDtype:{t}" for k, t in types.items()))
            ),
            oo_level=draw(st.sampled_from(("O3", "O1"))),
            oo_constant_folding=draw(st.booleans()),
            buffer_optimize=draw(st.sampled_from(("l2_optimize", "off_optimize"))),
            tiling_schedule_optimize=draw(st.booleans()),
            enable_single_stream=draw(st.booleans()),
            enable_small_channel=draw(st.booleans()),
        )
        mode = draw(st.sampled_from(ALL_PRECISION_MODES))
        return Candidate(target="ascend910b3", precision=Precision(mode=mode), compile=made)
    except ConfigError:
        return None


@given(candidate=candidates())
@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_whatever_a_candidate_says_the_emulated_atc_accepts(tmp_path: Path, candidate: Candidate | None) -> None:
    if candidate is None:
        return
    assert isinstance(candidate.compile, AscendCompile)
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    files = write_config_files(candidate.compile, tmp_path)

    for shape in shapes_of(candidate.compile, BERT):
        flags = compile_flags(
            candidate,
            shape,
            BERT,
            soc_version="Ascend910B3",
            model=tmp_path / "m.onnx",
            output=tmp_path / shape.name,
            files=files,
        )
        options = emulated(flags)

        assert {name: options[name] for name in flags} == flags
        read_switches(options.get("fusion_switch_file", ""), options.get("oo_level", ""))
        read_precision(options)


QUOTES_ONLY = frozenset({"E10034", "E13009"})
"""Codes whose message names an operator in words that no pattern picks out; the message is quoted whole."""


@pytest.mark.parametrize("version", ["8.5.0", "8.1.RC1"])
@pytest.mark.parametrize("code", catalogue())
def test_every_code_of_the_emulated_catalogue_is_read_and_explained(
    code: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANN_EMULATOR_VERSION", version)
    record = Record(code=code, arguments={"opname": "encoder/gelu_7", "op_name": "encoder/gelu_7", "message": "why"})
    lines = warning_lines([record]) if code.startswith("W") else error_lines([record])

    output = parse_output("\n".join(["ATC run failed, Please check the detail log", *lines, ""]))

    (message,) = output.errors + output.warnings
    assert message.code == (code if version == "8.5.0" or code != "E13010" else "E19010")
    assert meaning_of(message).problem not in ("ATC failed", "ATC warned")
    if "encoder/gelu_7" in message.text and code not in QUOTES_ONLY:
        assert operator_of(message)[0] == "encoder/gelu_7"
