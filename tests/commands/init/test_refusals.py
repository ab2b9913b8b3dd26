"""What `init` cannot go on with is refused as the user's to change, with the next step."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.graph.intake.graphs import recurrent
from tests.small_graphs import weight, write_graph
from workbench.commands.init.files import initialize
from workbench.evaluation.float_run import FloatRun, check_answers
from workbench.values.errors import ConfigError
from workbench.values.interface import OutputUse


def started(tmp_path: Path, kind: int, output: str) -> None:
    """`init` for one matrix product, computed in a type of its own."""
    nodes = [
        helper.make_node("Cast", ["x"], ["x_as"], "x_as", to=kind),
        helper.make_node("Cast", ["w"], ["w_as"], "w_as", to=kind),
        helper.make_node("MatMul", ["x_as", "w_as"], ["product"], "product"),
        helper.make_node("Cast", ["product"], [output], "wide", to=TensorProto.FLOAT),
    ]
    shapes = {"x": ["batch", 4]}, {output: ["batch", 1]}
    model = write_graph(tmp_path / "model.onnx", nodes, *shapes, w=weight(4, 1))
    for seed in (1, 2):
        np.savez(tmp_path / f"{seed}.npz", x=np.random.default_rng(seed).normal(size=(60, 4)).astype(np.float32))
    initialize(model, [tmp_path / "1.npz", tmp_path / "2.npz"], tmp_path, name="m")


def test_a_model_that_the_reference_cannot_open_is_refused_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.onnx: ONNX Runtime refused the model: .*Export it"):
        started(tmp_path, TensorProto.BFLOAT16, "logits")


def test_a_table_of_numbers_is_refused_with_the_program_that_makes_arrays_of_it(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["logits"], "product")]
    shapes = {"x": ["batch", 4]}, {"logits": ["batch", 3]}
    model = write_graph(tmp_path / "model.onnx", nodes, *shapes, w=weight(4, 3))
    rng, tables = np.random.default_rng(0), [tmp_path / "train.csv", tmp_path / "valid.csv"]
    for csv in tables:
        table = np.column_stack([rng.normal(size=(200, 4)), rng.integers(0, 3, 200)])
        np.savetxt(csv, table, delimiter=",", header="age,income,term,rate,label", comments="", fmt="%g")

    with pytest.raises(ConfigError, match="its columns are numbers") as refused:
        initialize(model, tables, tmp_path, name="m")
    program = str(refused.value).split('python -c "')[1].rstrip('"')
    for name in ("train", "valid"):
        asked = [sys.executable, "-c", program.replace("train", name)]
        subprocess.run(asked, cwd=tmp_path, check=True, timeout=120)
    arrays = [file.with_suffix(".npz") for file in tables]

    assert initialize(model, arrays, tmp_path, name="m").files


@pytest.mark.parametrize(
    ("state", "anew"),
    [
        ((2, "batch", 3), r"give the array 'state' in every data file, zeros \[samples, 2, 3\]"),
        ((2, 1, 3), "--constant state=0"),
    ],
)
def test_a_carried_state_without_steps_in_the_data_says_what_a_sample_is(
    tmp_path: Path, state: tuple[int | str, ...], anew: str
) -> None:
    model = recurrent(tmp_path / "m.onnx", state=state)
    if "batch" not in state:  # as exporters write a batch fixed at 1
        proto = onnx.load(model)
        for value in (proto.graph.input[0], proto.graph.output[0]):
            value.type.tensor_type.shape.dim[0].dim_value = 1
        onnx.save(proto, model)
    rng = np.random.default_rng(0)
    for name in ("train", "valid"):
        x = rng.normal(size=(12, 4)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x)
        np.savez(tmp_path / f"{name}-anew.npz", x=x, state=np.zeros((12, 2, 3), np.float32))

    def initialized(name: str, *data: str, **said: dict[str, str]) -> tuple[Path, ...]:
        return initialize(model, [tmp_path / file for file in data], tmp_path, name=name, **said).files  # type: ignore[arg-type]  # two of its mappings

    why = r"'stateN' is carried .* 'x' is to be \[samples, steps, 4\], and calibration gives \[samples, 4\]"
    with pytest.raises(ConfigError, match=rf"{why}.* begins anew with every sample.*{anew}"):
        initialized("steps", "train.npz", "valid.npz")
    if "batch" in state:
        assert initialized("anew", "train-anew.npz", "valid-anew.npz")
    else:
        constants, outputs = {"state": "0"}, {"stateN": "ignored"}
        assert initialized("anew", "train.npz", "valid.npz", constants=constants, outputs=outputs)


def test_answers_that_nothing_can_be_held_against_are_refused() -> None:
    ignored = OutputUse(name="other", meaning="ignored")
    for values, said in (
        ([[1.0], [np.nan]], r"output 'y' holds NaN or infinity, first for sample 1 .*y=ignored"),
        ([[1.0], [1.0]], r"the same answer to each of the 2 first samples"),
    ):
        outputs = {"y": np.array(values, np.float32), "other": np.array([[0.0], [1.0]])}
        run = FloatRun(outputs=outputs, samples=2, rows=(), call_ms=1.0)
        with pytest.raises(ConfigError, match=said):
            check_answers(run, [ignored], Path("m.onnx"))
        check_answers(run, [OutputUse(name="y", meaning="ignored")], Path("m.onnx"))
