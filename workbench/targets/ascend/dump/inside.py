"""The target's part of `workbench compare onnx:F om:…`: run compiled files with everything dumped, and read it.

`python -m workbench.targets.ascend.dump.inside FOLDER` runs the set that request.json and feeds.npz in a folder name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from workbench.quantization.amct.cfg import AMCT_CONFIG, parse_cfg
from workbench.quantization.amct.protobuf_text import print_message
from workbench.targets.apart import own_environment, run_apart
from workbench.targets.ascend.acl.process import ACL_CONFIG, write_acl_config
from workbench.targets.ascend.acl.session import AscendSession
from workbench.targets.ascend.atc.atc import find_atc
from workbench.targets.ascend.atc.om_json import ask_om
from workbench.targets.ascend.dump.dump_file import executions, is_dump
from workbench.targets.ascend.dump.recording import read_recording
from workbench.targets.ascend.interface import interface_of, read_interface, write_interface
from workbench.targets.ascend.settings import ASCEND, INTERFACE, MIXED_MODES, AscendCompile
from workbench.targets.ascend.toolchain import ascend_toolchain
from workbench.targets.base import Feeds
from workbench.targets.common import compiled_file
from workbench.targets.feeds import load_feeds, save_feeds
from workbench.targets.inside import Change, DeviceOperator, Recording, Remedy
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, Precision
from workbench.values.documents.canonical import canonical_json, decode
from workbench.values.documents.json_reader import loads
from workbench.values.errors import ConfigError, MeasureError, ToolchainError, WorkbenchError
from workbench.values.model import Model
from workbench.values.system.scratch import scratch_folder

DUMP = "dump"
"""Folder of the dump, beside acl.json."""
_SUFFIX = ".om"
_EVERYTHING = {
    "dump_list": [{}],
    "dump_mode": "all",
    "dump_level": "op",
    "dump_op_switch": "off",
    "dump_data": "tensor",
}
"""Of acl.json (pyacl.md §5.5): inputs and outputs of every operator, of whatever model is loaded."""


class AscendInside:
    """See `workbench.targets.inside.LooksInside`."""

    def record(
        self, files: Path, artifact: Artifact | None, model: Model, feeds: Sequence[Feeds], to: Path
    ) -> Recording:
        to.mkdir(parents=True, exist_ok=True)
        if is_dump(to / DUMP):
            hint = f"Compare that: om:{to}; or name another folder with --to."
            raise ConfigError("a dump is in this folder already.", file=to, hint=hint)
        with _complete(files, artifact, model) as (directory, whole):
            _run_apart(directory, whole, feeds, to)
            try:
                ran = executions(to / DUMP)
            except ConfigError as error:
                raise MeasureError(f"the device dumped nothing into {to / DUMP}.", log_path=to / "run.log") from error
            # as a dump folder calls a model
            compiled = {re.sub(r"[./\\ ]", "_", Path(file.file).stem): directory / file.file for file in whole.files}
            with suppress(ToolchainError):  # without an ATC the dump alone has to do
                find_atc(os.environ)
                for name in compiled.keys() & {execution.model for execution in ran}:
                    ask_om(compiled[name], (to / f"{name}.json").write_bytes, log=to / f"{name}.log")
        return self.read(to, model)

    def is_recording(self, folder: Path) -> bool:
        return is_dump(folder) or is_dump(folder / DUMP)

    def read(self, folder: Path, model: Model) -> Recording:
        return read_recording(folder / DUMP if is_dump(folder / DUMP) else folder, folder, model)

    def remedies(self, beyond_half: Sequence[DeviceOperator], layers: Sequence[str]) -> tuple[Remedy, ...]:
        found = []
        if names := tuple(dict.fromkeys(node for operator in beyond_half for node in operator.nodes)):
            what = "these nodes are computed in the float model's type (a file of --keep_dtype has one a line)"
            found.append(Remedy(setting="compile.keep_dtype", lines=names, what=what))
        if layers:
            skipped = tuple(dict.fromkeys(layers))
            text = print_message(AMCT_CONFIG(skip_layers=skipped))
            if tuple(parse_cfg(text).message.skip_layers) != skipped:
                raise MeasureError(f"AMCT's configuration does not hold these names: {', '.join(skipped)}.")
            lines = tuple(line for line in text.splitlines() if line.startswith("skip_layers"))
            what = "these layers stay in float (AMCT's simplified configuration, quantization.scheme: cfg)"
            found.append(Remedy(setting="skip_layers", lines=lines, what=what))
        return tuple(found)

    def changes(self, candidate: Candidate, operators: Sequence[DeviceOperator]) -> tuple[Change, ...]:
        """The smallest change first. Those that go beside the rest of the candidate, as INT8 excludes some modes."""
        return tuple(_changes(candidate, operators))


@contextmanager
def _complete(files: Path, artifact: Artifact | None, model: Model) -> Iterator[tuple[Path, Artifact]]:
    """The folder of a set and what is in it; bare OM files get the interface that the float model has."""
    if artifact is not None:
        yield files, artifact
        return
    found = [files] if files.is_file() else sorted(file for file in files.glob(f"*{_SUFFIX}") if file.is_file())
    if not found or any(file.suffix != _SUFFIX for file in found):
        raise ConfigError(
            "neither a compiled file, nor a folder with compiled files, nor a dump.",
            file=files,
            hint="Name an OM, a folder of OM files, a bundle, a dump folder, or with --experiment a candidate.",
        )
    with scratch_folder("om-set") as folder:
        for file in found:
            (folder / file.name).symlink_to(file.resolve())
        try:
            write_interface(read_interface(found[0].parent), folder)
        except FileNotFoundError:
            write_interface(interface_of(model), folder)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{error}.", file=found[0].parent / INTERFACE) from error
        # of such a set only the files are known; which shapes they have is asked of the device
        yield (
            folder,
            Artifact(
                target=ASCEND,
                files=tuple(compiled_file(folder, name) for name in (*(file.name for file in found), INTERFACE)),
                toolchain=ascend_toolchain(),
                int8_ops=0,
                float_matmuls_left=0,
                kernels={},
            ),
        )


# --- what may help: the candidates that `workbench repair` tries ---

_MIXED = "allow_mix_precision"
_MODES = ("allow_fp32_to_fp16", _MIXED, "must_keep_origin_dtype")
"""Modes that keep more types than force_fp16: all but matrix products, all but the white list, and everything."""


def _changes(candidate: Candidate, operators: Sequence[DeviceOperator]) -> Iterator[Change]:
    """Nodes that keep the model's type, types on the black list of mixed precision, another mode for the whole model in
    the place of both."""
    settings, mode = AscendCompile.of(candidate), candidate.precision.mode
    tried: list[tuple[str, str, AscendCompile, str]] = []
    names = tuple(dict.fromkeys(node for operator in operators for node in operator.nodes))
    if names:
        what = f"in the model's type: {', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
        keep = tuple(dict.fromkeys((*settings.keep_dtype, *names)))
        tried.append(("compile.keep_dtype", what, replace(settings, keep_dtype=keep), mode))
    types = [o.op_type for o in operators if o.nodes and re.fullmatch(r"[A-Za-z]\w*", o.op_type)]
    if types:
        mixed = mode if mode in MIXED_MODES else _MIXED
        entries = (f"black-list.to-add:{one}" for one in types)
        listed = replace(settings, modify_mixlist=tuple(dict.fromkeys((*settings.modify_mixlist, *entries))))
        what = f"in the model's type: every {', '.join(dict.fromkeys(types))}, in {mixed}"
        tried.append(("compile.modify_mixlist", what, listed, mixed))
    plain = replace(settings, keep_dtype=(), modify_mixlist=())
    tried += [("precision.mode", f"the whole model is compiled in {other}", plain, other) for other in _MODES]
    for setting, what, compile, precision in tried:
        with suppress(ConfigError):  # what cannot be said beside the others is no way on
            made = replace(candidate, compile=compile, precision=Precision(mode=precision))
            if made.id != candidate.id:
                yield Change(candidate=made, setting=setting, what=what, wider=setting == "compile.keep_dtype")


# --- the set in a process of its own, in which acl.json has everything dumped ---

_REQUEST, _FEEDS, _TIMEOUT_S = "request.json", "feeds.npz", 900.0


def _run_apart(directory: Path, artifact: Artifact, feeds: Sequence[Feeds], to: Path) -> None:
    """Run the feeds once each.

    Raises:
        MeasureError: it fails or takes too long; carries the log.
    """
    with scratch_folder("device-run") as folder:
        request = {"directory": directory.resolve(), "artifact": artifact}
        (folder / _REQUEST).write_text(canonical_json(request), encoding="utf-8")
        save_feeds(feeds, folder / _FEEDS)
        environment = {**own_environment(), ACL_CONFIG: str(write_acl_config(to, DUMP, _EVERYTHING))}
        command, log = [sys.executable, "-m", __name__, str(folder)], to / "run.log"
        ended = run_apart(command, environment=environment, timeout_s=_TIMEOUT_S, log=log)
        if ended.code != 0:
            raise MeasureError(f"running {directory} on the device {ended.words}", log_path=log)


def _main(folder: Path) -> None:
    request = loads((folder / _REQUEST).read_bytes())
    with closing(AscendSession(Path(request["directory"]), decode(Artifact, request["artifact"]))) as session:
        for feeds in load_feeds(folder / _FEEDS):
            session.run(feeds)


if __name__ == "__main__":
    try:
        _main(Path(sys.argv[1]))
    except WorkbenchError as failed:
        sys.stderr.write(f"{failed}\n")
        sys.exit(1)
