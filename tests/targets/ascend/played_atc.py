"""Programs that play an atc: shell scripts for what no emulator of the vendor's would do."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

from workbench.targets.ascend.atc.command import compile_flags, shapes_of
from workbench.targets.ascend.interface import Interface, Port
from workbench.targets.ascend.om_set import compile_shapes
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.artifact import Artifact, Toolchain
from workbench.values.candidate import Candidate, Precision, Quantization, Serving

PREAMBLE = """\
#!/bin/sh
mode=0
for word in "$@"; do
  case "$word" in
    --mode=*) mode="${word#*=}" ;;
    --output=*) output="${word#*=}" ;;
    --json=*) json="${word#*=}" ;;
    --model=*) model="${word#*=}" ;;
    --input_shape=*) shape="${word#*=}" ;;
  esac
done
echo "ATC start working now, please wait for a moment."
if [ "$mode" = 1 ]; then
  echo '{"graph": [{"op": [{"type": "Data"}, {"type": "MatMulV2", "input_desc": []}]}]}' > "$json"
  echo "ATC run success, welcome to the next use."
  exit 0
fi
"""
SUCCESS = 'echo "ATC run success, welcome to the next use."\n'


def play_atc(folder: Path, body: str) -> dict[str, str]:
    """Write `folder/bin/atc`, which does `body` in mode 0, and return an environment that finds it."""
    return play(folder, "atc", PREAMBLE + textwrap.dedent(body)) | {"HOME": str(folder)}


def play(folder: Path, name: str, script: str) -> dict[str, str]:
    """Write `folder/bin/name`, a shell script, and return an environment that finds it."""
    program = folder / "bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin"}


INTERFACE = Interface(
    inputs=(Port(name="ids", dtype="int64", shape=("batch", "sequence")),),
    outputs=(Port(name="y", dtype="float32", shape=("batch", 3)),),
)
CHAIN = Toolchain(target="ascend910b3", components={"cann": "8.5.0"}, device="Ascend910B3", emulated=True)
ONE = AscendCompile(sequence_bins=(16,))
FOUR = AscendCompile(batches=(1, 2), sequence_bins=(16, 32))
WRITES_OM = 'echo "$shape" > "$output.om"\n' + SUCCESS


def compiled(
    tmp_path: Path,
    body: str,
    settings: AscendCompile = ONE,
    to: Path | None = None,
    *,
    parallel: int = 2,
    **variables: str,
) -> list[Artifact]:
    lowered = tmp_path / "lowered.onnx"
    lowered.write_bytes(b"onnx")
    to = to or tmp_path / "to"
    to.mkdir(parents=True, exist_ok=True)
    return compile_shapes(
        lowered,
        replace(candidate(), compile=settings),
        INTERFACE,
        lambda shape: to,
        toolchain=CHAIN,
        environment=play_atc(tmp_path, body) | variables,
        parallel=parallel,
    )


def candidate(
    mode: str = "force_fp16", quantization: Quantization | None = None, batch: int = 1, **settings: object
) -> Candidate:
    """Of a compile with these settings."""
    return Candidate(
        target="ascend910b3",
        precision=Precision(mode=mode),
        quantization=quantization or Quantization(),
        compile=AscendCompile(**settings),  # type: ignore[arg-type]  # a test names fields by keyword
        serving=Serving(batch=batch),
    )


def flags_of(candidate: Candidate, interface: Interface) -> dict[str, str]:
    """Of the candidate's first shape."""
    assert isinstance(candidate.compile, AscendCompile)
    shape = shapes_of(candidate.compile, interface)[0]
    model, chip = Path("m.onnx"), CHAIN.device
    return compile_flags(candidate, shape, interface, soc_version=chip, model=model, output=Path("m"), files={})
