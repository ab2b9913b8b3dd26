"""A conversion from its checked flags on, step by step in the vendor's order: the first step that fails decides.

    flags        checks.FLAG_CHECKS                                      main_impl.cc:633-860,1618-1660
    engines      the chip, switches, lists of types, debug file         main_impl.cc:1457, gelib.cc:106,324
    requests     static shapes, layouts of outputs, --out_nodes          main_impl.cc:1475, omg.cc InitDomiOmgContext
    model        the file, the pre-check, ranks, output tensors          onnx_parser.cc, onnx_data_parser.cc:130
    inputs       --input_fp16_nodes, open axes and names, ranges         omg.cc CheckInputFp16Nodes to the end
    outputs      --output_type, then the nodes of --out_nodes            omg.cc SetOutputNodeInfo
    attributes   the file of --keep_dtype                                main_impl.cc SetAttrOptions
    AMCT         --compression_optimize_conf, which is not emulated      main_impl.cc:1283-1317
    compile      oo_*, AIPP, gears, the graph, writing                   main_impl.cc GenerateOfflineModel

All of ge v8.5.0. --mode=3 ends behind the pre-check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from workbench.cann_emulator.atc.aipp import insert_aipp
from workbench.cann_emulator.atc.boundary import asked_outputs, input_dtypes, output_tensors
from workbench.cann_emulator.atc.checks import check_optimization_flags
from workbench.cann_emulator.atc.compiler import Compiled, compile_model, write_compiled
from workbench.cann_emulator.atc.engine import Engine, Screen, start_engine
from workbench.cann_emulator.atc.failure import AtcFailure, Record, failure
from workbench.cann_emulator.atc.flags import value_of
from workbench.cann_emulator.atc.gears import plan_shapes
from workbench.cann_emulator.atc.onnx_parser import Parsed, parse_onnx
from workbench.cann_emulator.atc.precheck import check, report_path, write_report
from workbench.cann_emulator.atc.precision_files import with_kept_types
from workbench.cann_emulator.atc.requests import Requests, check_names, check_ranks, input_shapes, read_requests


def run_precheck(options: Mapping[str, str], console: Screen) -> tuple[Record, ...]:
    """Mode 3: the report, and failure where an operator did not pass.

    Raises:
        AtcFailure: of the engine's start, of the requests, of the parse, or E13010/E13009, one for each operator.
    """
    start_engine(options, console)
    read_requests(options)
    parsed = parse_onnx(Path(options["model"]))
    checked, error = check(parsed)
    write_report(parsed, checked, report_path(options))
    console.log("info", "GE", f"{len(checked)} operators checked")
    if error is not None:
        raise error
    return ()


def run_compile(options: Mapping[str, str], console: Screen) -> tuple[Record, ...]:
    """Mode 0: from the ONNX file to the OM file; returns warnings.

    Raises:
        AtcFailure: as `compiled_of`, or that a file cannot be written, which ends with E10042 too.
    """
    made = compiled_of(options, console)
    try:
        write_compiled(made, options, console)
    except AtcFailure as error:
        raise AtcFailure(*error.records, Record(code="E10042")) from error
    return ()


def compiled_of(options: Mapping[str, str], console: Screen) -> Compiled:
    """What mode 0 writes.

    Args:
        options: flag → text of those given, and `_command_line`.

    Raises:
        AtcFailure: of the first step that fails. What the compile itself raises ends with E10042.
    """
    engine = start_engine(options, console)
    requests = read_requests(options)
    parsed = _parsed(options, requests)
    input_dtypes(parsed, options)
    check_names(parsed, requests)
    shapes = input_shapes(parsed, requests)
    outputs = output_tensors(parsed, requests.out_nodes, options.get("output_type", ""))
    engine = _with_kept_types(engine, parsed, options, console)
    if options.get("compression_optimize_conf"):
        why = (
            "this atc is emulated and runs no calibration inside a conversion; quantize with amct_onnx and convert its "
        )
        raise failure("E10055", reason=f"{why}deploy model")
    try:
        check_optimization_flags(options)
        input_format = value_of(options, "input_format")
        plan = plan_shapes(shapes, requests, input_format=input_format, quantized=parsed.quantized)
        parsed, plan = insert_aipp(parsed, plan, options)
        fed = input_dtypes(parsed, options)  # again, since an image for AIPP is fed as bytes
        return compile_model(parsed, plan, engine, options, fed, outputs, console)
    except AtcFailure as error:
        raise AtcFailure(*error.records, Record(code="E10042")) from error


def _parsed(options: Mapping[str, str], requests: Requests) -> Parsed:
    """The model, which passed its pre-check, and is what the requests ask for as far as the parser looks."""
    parsed = parse_onnx(Path(options["model"]))
    checked, error = check(parsed)
    if error is not None:
        if any(op.causes for op in checked):
            write_report(parsed, checked, report_path(options))
        raise error
    check_ranks(parsed, requests)
    if requests.out_nodes.tensors:
        asked_outputs(parsed, requests.out_nodes)
    return parsed


def _with_kept_types(engine: Engine, parsed: Parsed, options: Mapping[str, str], console: Screen) -> Engine:
    precision = with_kept_types(engine.precision, options)
    for name in sorted(precision.keep_names - {node.name for node in parsed.proto.graph.node}):
        console.log("warning", "GE", f"keep_dtype: the graph has no node {name}")
    return replace(engine, precision=precision)
