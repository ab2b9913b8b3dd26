"""Files as AMCT writes them: folders 750, files 640 (amct.md §1.2), each there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import onnx

from workbench.values.system.files import temporary_beside

FILE_MODE, FOLDER_MODE = 0o640, 0o750
_LARGEST_PROTO_BYTES = 2**31 - 1


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True)
        place.chmod(FOLDER_MODE)


def write(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file by one rename; an older one is overwritten without asking (amct.md §12)."""
    target = Path(os.path.realpath(path))
    make_folder(target.parent)
    with temporary_beside(target, durable=False) as draft:
        draft.write_bytes(content if isinstance(content, bytes) else content.encode())
        draft.chmod(FILE_MODE)
    return target


def write_model(path: str | os.PathLike[str], model: onnx.ModelProto, *, external: str | None = None) -> Path:
    """Write an ONNX file.

    Args:
        external: ending of the files that hold the tensors, one each, where the model needs or had them outside
            (amct.md §1.3: `<tensor>_deploy.external`); None where the model is always one file.
    """
    if external is not None and model.ByteSize() > _LARGEST_PROTO_BYTES:
        write_external(model, Path(path), external)
    return write(path, model.SerializeToString())


def write_external(model: onnx.ModelProto, path: Path, ending: str) -> None:
    """Move every initializer's bytes to a file of its own next to the model; `model` is changed."""
    for tensor in model.graph.initializer:
        if tensor.HasField("raw_data"):
            # a tensor's name may hold what a file name may not; AMCT's own replacement is not known [inferred]
            name = f"{tensor.name.replace('/', '_')}_{ending}.external"
            write(path.parent / name, tensor.raw_data)
            onnx.external_data_helper.set_external_data(tensor, location=name, offset=0, length=len(tensor.raw_data))
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
