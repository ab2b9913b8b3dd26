"""Sets of OM files, from programs that play an atc and from the emulated one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.emulated_cann import emulated_environment
from tests.targets.ascend.played_atc import CHAIN, FOUR, SUCCESS, WRITES_OM, candidate, compiled, play_atc
from workbench.targets.ascend.atc.compile_story import read_story
from workbench.targets.ascend.interface import Interface, Port
from workbench.targets.ascend.om_set import compile_shapes
from workbench.testing.encoder import save, tiny_encoder
from workbench.values.errors import CompileError, ToolchainError


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_one_file_for_each_batch_and_bin_its_log_and_what_atc_told(tmp_path: Path) -> None:
    made = compiled(tmp_path, WRITES_OM + "echo '(W11001): Op gelu does not hit the library.'\n", FOUR)

    shapes = {"b1_s16": (1, 16), "b1_s32": (1, 32), "b2_s16": (2, 16), "b2_s32": (2, 32)}
    files = [artifact.files[0] for artifact in made]
    assert {f.file: (f.batch, f.sequence_bin) for f in files} == {f"{n}.om": shape for n, shape in shapes.items()}
    assert (tmp_path / "to" / "b2_s32.om").read_text() == "ids:2,32\n"
    assert files[3].size_bytes == 9
    assert {(*a.kernels.items(), a.int8_ops, a.float_matmuls_left) for a in made} == {(("MatMulV2", 1), 0, 1)}
    each = (f"{name}.{end}" for name in shapes for end in ("json.log", "log", "om", "story.json"))
    assert names(tmp_path / "to") == [*each, "interface.json"]
    story = read_story(tmp_path / "to")
    assert story is not None
    missing, warned = story.warnings
    assert "fusion_result.json cannot be read" in missing
    assert (warned, story.fusions) == ("W11001: Op gelu does not hit the library.", {})
    assert sorted(story.seconds) == [f"{name}.om" for name in shapes]


def test_a_success_without_a_usable_file_is_a_failure(tmp_path: Path) -> None:
    for number, (body, words) in enumerate(
        (
            (': > "$output.om"\n' + SUCCESS, "b1_s16.om is empty"),
            ('echo x > "$output.om.om"\n' + SUCCESS, "there is no OM file"),
        )
    ):
        with pytest.raises(CompileError, match=words) as raised:
            compiled(tmp_path, body, to=tmp_path / str(number))
        assert raised.value.log_path == tmp_path / str(number) / "b1_s16.log"
        assert "ATC run success" in raised.value.log_path.read_text()


def test_the_first_failure_ends_the_others_and_its_log_is_told(tmp_path: Path) -> None:
    body = """\
    if [ "$shape" = "ids:1,32" ]; then
      sleep 0.3
      echo "ATC run failed"
      echo "(E20001): Failed to compile Op gelu_3, optype: Gelu."
      exit 255
    fi
    sleep 600 & echo $! > "$output.pid"
    wait
    """
    with pytest.raises(CompileError) as raised:
        compiled(tmp_path, body, FOUR)

    assert raised.value.log_path == tmp_path / "to" / "b1_s32.log"
    model = f" --model={tmp_path / 'lowered.onnx'} "  # in full: its directory is gone
    for words in ("batch 1, length 32", "(E20001)", "Op gelu_3, optype: Gelu", "--input_shape=ids:1,32", model):
        assert words in str(raised.value)
    assert not running_below(tmp_path)
    assert not [name for name in names(tmp_path / "to") if not name.endswith(".log")]


def running_below(folder: Path) -> list[str]:
    """Command lines of live processes that mention the folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and process.info["status"] != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
            found.append(line)
    return found


def test_trouble_of_the_machine_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"ASCEND_OPP_PATH names .*/opp.*Install the ops package"):
        compiled(tmp_path, WRITES_OM, ASCEND_OPP_PATH=str(tmp_path / "opp"))
    with pytest.raises(ToolchainError, match="write rights"):  # in /proc nobody makes files, not even root
        compiled(tmp_path, WRITES_OM, to=Path("/proc/self/task"))
    with pytest.raises(ToolchainError, match=r"disk of .* is full.*Free some space"):
        compiled(tmp_path, 'cat "$model" > /dev/full || exit 255\n')


def test_an_interrupt_ends_every_compile(tmp_path: Path) -> None:
    play_atc(tmp_path, 'echo $$ > "$output.pid"; sleep 600')
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pathlib import Path\n"
        "from tests.targets.ascend.played_atc import compiled, FOUR\n"
        f"compiled(Path({str(tmp_path)!r}), 'echo $$ > \"$output.pid\"; sleep 600', FOUR)\n"
    )
    workbench = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "to").rglob("*.pid"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)

    workbench.send_signal(signal.SIGINT)
    _, words = workbench.communicate(timeout=300)

    assert b"KeyboardInterrupt" in words
    assert not running_below(tmp_path)
    assert not list((tmp_path / "to").glob(".atc-*"))


def test_an_input_that_the_model_lacks_is_named(tmp_path: Path) -> None:
    """Beside every input's own shape; alone it leaves the model's axes open, which ATC tells first."""
    environment, model = emulated_environment(tmp_path), save(tiny_encoder(), tmp_path / "model.onnx")
    ports = tuple(Port(name=name, dtype="int64", shape=("batch", "sequence")) for name in ("ids", "idz"))
    for inputs, words in (
        (ports, r"\(E10016\): a name that was given is not in the model.*idz"),
        (ports[1:], r"\(E10001\): the model has dynamic axes and not every input was given"),
    ):
        taken, asked = Interface(inputs=inputs, outputs=()), candidate(sequence_bins=(16,))
        with pytest.raises(CompileError, match=words):
            compile_shapes(model, asked, taken, lambda shape: tmp_path, toolchain=CHAIN, environment=environment)
