"""Flags that a space names are passed on and kept; ATC refuses others."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.ascend_workspace import QUIET, write_ascend_workspace
from tests.emulated_cann import emulated_environment, switched_on
from tests.targets.ascend.offline_files import TEXT
from tests.targets.ascend.played_atc import CHAIN, candidate, flags_of
from workbench.api.opening import named_candidate, read_experiment
from workbench.commands.cli import app
from workbench.graph.read import read_model
from workbench.space.reader import read_space
from workbench.space.space import assignment_of, build, complete
from workbench.targets.ascend.flags import copied_bank
from workbench.targets.ascend.interface import interface_of
from workbench.targets.ascend.om_set import compile_shapes
from workbench.targets.ascend.settings import AscendCompile
from workbench.testing.encoder import save, tiny_encoder
from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.errors import CompileError, ConfigError, ToolchainError

SPACE = """
version: 1
target: ascend910b3
parameters:
  precision.mode: {choices: [force_fp16]}
  compile.sequence_bins: {choices: ["8"]}
"""


def space_of(tmp_path: Path, **options: str) -> Path:
    lines = "\n".join(f"  compile.{name}: {{choices: {choices}}}" for name, choices in options.items())
    file = tmp_path / "space.yaml"
    file.write_text(f"{SPACE}{lines}\n", encoding="utf-8")
    return file


def test_flags_that_a_space_names_reach_the_command_line(tmp_path: Path) -> None:
    file = space_of(tmp_path, sparsity="[0, 1]", deterministic='["off", 1]', oo_dead_code_elimination="[false, true]")
    space = read_space(file)
    chosen = {"compile.sparsity": "1", "compile.oo_dead_code_elimination": "false"}

    built = build(space, complete(space, chosen))

    flags = flags_of(built, TEXT)
    assert (flags["sparsity"], flags["oo_dead_code_elimination"]) == ("1", "false")
    assert "deterministic" not in flags
    assert built.parameters()["compile.sparsity"] == "1"
    assert candidate_from_json(built.to_json()) == built
    assert assignment_of(space, built) == complete(space, chosen)


def test_an_operator_bank_is_named_by_what_it_holds_and_atc_is_given_a_copy(tmp_path: Path) -> None:
    (tmp_path / "bank").mkdir()
    bank = tmp_path / "bank" / "MatMulV2.json"
    bank.write_text("{}", encoding="utf-8")
    file = space_of(tmp_path, op_bank_path='["off", bank]')

    def of_the_bank() -> Candidate:
        space = read_space(file)
        return build(space, complete(space, {"compile.op_bank_path": "bank"}))

    first = of_the_bank()
    assert isinstance(first.compile, AscendCompile)
    (tmp_path / "first").mkdir()
    given = copied_bank(dict(first.compile.options), tmp_path / "first")["op_bank_path"]
    assert (given.is_relative_to(tmp_path / "first"), (given / bank.name).read_text("utf-8")) == (True, "{}")
    bank.write_text("{} ", encoding="utf-8")
    with pytest.raises(CompileError, match=r"op_bank_path: .* holds something else"):
        copied_bank(dict(first.compile.options), tmp_path)
    assert of_the_bank().id != first.id
    bank.unlink()
    with pytest.raises(ConfigError, match=r"space.yaml.*op_bank_path.*empty folder"):
        read_space(file)


def test_what_atc_would_not_take_is_refused_with_the_file_and_the_key(tmp_path: Path) -> None:
    for options, said in (
        ({"op_bank_path": "[nowhere]"}, "no such folder"),
        ({"custom_opp_path": "[nowhere]"}, "not a parameter"),
        ({"sparsity": "[2]"}, "is not a value of this parameter"),
        ({"external_weight": "[1]"}, "not a parameter"),
        ({"aicore_nums": '["20|40"]'}, "not a parameter"),
        ({"insert_op_conf": "[aipp.cfg]"}, "not a parameter"),
    ):
        with pytest.raises(ConfigError, match=rf"space\.yaml.*{said}"):
            read_space(space_of(tmp_path, **options))
    for smuggled, said in (
        ((("external_weight", "1"),), "no flag that is passed on"),
        ((("precision_mode", "force_fp32"),), "no flag that is passed on"),
        ((("sparsity", "1"), ("deterministic", "1")), "sorted"),
        ((("op_bank_path", "/bank@0"), ("op_compiler_cache_mode", "enable")), "hides the bank"),
    ):
        with pytest.raises(ConfigError, match=said):
            AscendCompile(options=smuggled)


def test_the_emulated_atc_honours_a_flag_and_refuses_a_file_as_documented(tmp_path: Path) -> None:
    environment = emulated_environment(tmp_path)
    lowered = save(tiny_encoder(), tmp_path / "model.onnx")

    def compiled(*options: tuple[str, str], mode: str = "force_fp16", **files: tuple[str, ...]) -> bytes:
        place = tmp_path / "-".join((*files, *(name for name, _ in options)))
        place.mkdir()
        asked, taken = candidate(mode, sequence_bins=(8,), options=options, **files), interface_of(read_model(lowered))
        compile_shapes(lowered, asked, taken, lambda shape: place, toolchain=CHAIN, environment=environment)
        return (place / "b1_s8.om").read_bytes()

    assert b"--disable_reuse_memory=1" in compiled(("disable_reuse_memory", "1"))
    with pytest.raises(CompileError, match="E20103"):  # the chip has 20 cores
        compiled(("aicore_num", "99|40"))
    changes = ("black-list.to-add:Add", "white-list.to-add:Add")
    with pytest.raises(CompileError, match=r"E20003.*Add.*The file was written from compile\.modify_mixlist"):
        compiled(mode="allow_mix_precision", modify_mixlist=changes)
    with pytest.raises(CompileError, match=r"E20003.*fp16.*The file was written from compile\.customize_dtypes"):
        compiled(customize_dtypes=("OpType::Gelu:InputDtype:fp16,OutputDtype:float",))


def tune(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["tune", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_a_bank_is_filled_for_every_shape_and_is_part_of_the_key_or_the_tool_is_quoted(tmp_path: Path) -> None:
    file, to = write_ascend_workspace(tmp_path / "ws"), tmp_path / "to"
    environment = emulated_environment(tmp_path / "cann", **QUIET)
    question = read_experiment(file)
    with switched_on(environment):
        said = tune(file, "--to", to)
        tuned = {question.baseline.id, named_candidate(str(to / "candidate.json"), question).id}
        next((to / "bank").iterdir()).write_text("brought from another machine", encoding="utf-8")
        tune(file, "--bank", to / "bank", "--to", tmp_path / "brought")
        tuned.add(named_candidate(str(tmp_path / "brought" / "candidate.json"), question).id)

    for words in (
        "EMULATED",
        "tuning b1_s8",
        "its key has: compile.op_bank_path",
        f"workbench evaluate {file} --candidate",
    ):
        assert words in said
    assert len(tuned) == 3, "the content of the bank makes another candidate"

    words = r"did not tune b1_s8.*exit code 1: .*not supported on this product.*op_bank_path"
    with switched_on({**environment, "CANN_EMULATOR_AOE": "refuses"}), pytest.raises(CompileError, match=words):
        tune(file, "--to", tmp_path / "refused")
    (Path(environment["ASCEND_HOME_PATH"]) / "bin" / "aoe").unlink()
    with switched_on(environment), pytest.raises(ToolchainError, match=r"No aoe on PATH.*--bank FOLDER"):
        tune(file, "--to", tmp_path / "refused")
