"""Writing ONNX as a stream: weights go from where they lie to where they belong, one at a time.

    write_model(model, path)                     # one file
    write_model(model, path, beside="weights")   # the graph, and beside it a file for each large tensor

Tensors that refer to other files (apart.py) are copied in pieces. A model beyond what protobuf holds gets its large
tensors beside it in any case. Files beside a model are named by their content, so that models with a tensor in common
have a file in common, and a store keeps it once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from onnx import ModelProto, TensorProto

from workbench.graph.apart import (
    GRAPH,
    INITIALIZER,
    RAW_DATA,
    chunks_of,
    forget_place,
    hold,
    place_of,
    refer,
    refers_apart,
    tag,
    varint,
)
from workbench.graph.nodes import copied
from workbench.graph.tensors import ExternalPlace
from workbench.values.system.scratch import scratch_folder

MOST_BYTES = (1 << 31) - 1
"""Of a protobuf message; a larger model keeps its weights beside it."""
BESIDE_BYTES = 1 << 18
"""Tensors from this size on get a file of their own where tensors lie beside the model."""
WEIGHTS = "weights"
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""ONNX Runtime's key for the folder of the external data of a model that comes from memory."""


def is_apart(model: ModelProto) -> bool:
    """Whether some of its weights lie outside of memory."""
    return any(refers_apart(tensor) for tensor in model.graph.initializer)


def write_model(model: ModelProto, path: Path, *, beside: str | None = None) -> tuple[Path, ...]:
    """Write a model; equal models give equal bytes. A file that is there is replaced.

    Args:
        beside: the folder beside `path` for large tensors; None where they belong into the file. Larger models than
            `MOST_BYTES` use `weights` all the same.

    Returns:
        The files with tensors, beside `path` itself.

    Raises:
        ConfigError: what a tensor refers to has changed.
        OSError: it cannot be written.
    """
    referred = sum(place_of(tensor)[2] for tensor in model.graph.initializer if refers_apart(tensor))
    if beside is None and model.ByteSize() + referred > MOST_BYTES:
        beside = WEIGHTS
    if beside is None:
        with path.open("wb") as stream:
            if is_apart(model):
                stream.writelines(_message(model))
            else:
                stream.write(model.SerializeToString(deterministic=True))
        return ()
    slim = copied(model)  # large tensors are rarely held, and those that are, briefly twice
    files = []
    folder = path.parent / beside
    for tensor in slim.graph.initializer:
        length = place_of(tensor)[2] if refers_apart(tensor) else len(tensor.raw_data)
        if length < BESIDE_BYTES:
            if refers_apart(tensor):
                hold(tensor)
            continue
        file = _put(folder, chunks_of(tensor) if refers_apart(tensor) else [tensor.raw_data])
        files.append(file)
        refer(tensor, ExternalPlace(location=f"{beside}/{file.name}", offset=0, length=length))
    path.write_bytes(slim.SerializeToString(deterministic=True))
    return tuple(dict.fromkeys(files))


@contextlib.contextmanager
def runnable(model: ModelProto) -> Iterator[tuple[bytes, Path]]:
    """(the model's bytes, the folder of its weights) for a runtime that opens it within the block.

    That is the folder where they lie, or where they lie in several one with links to them, with copies where links do
    not work.
    """
    slim = copied(model)
    apart = [tensor for tensor in slim.graph.initializer if refers_apart(tensor)]
    folders = {place_of(tensor)[0].parent for tensor in apart}
    with contextlib.ExitStack() as stack:
        alone = len(folders) == 1
        folder = folders.pop() if alone else stack.enter_context(scratch_folder("linked"))
        names: dict[Path, str] = {}
        for tensor in apart:
            path, offset, length = place_of(tensor)
            if path not in names:
                names[path] = path.name if alone else _linked(path, folder, str(len(names)))
            name = names[path]
            if not name:
                name, offset = _put(folder, chunks_of(tensor)).name, 0
            refer(tensor, ExternalPlace(location=name, offset=offset, length=length))
        yield slim.SerializeToString(deterministic=True), folder


def write_shared(model: ModelProto, path: Path) -> None:
    """Write a model of our own making: of a large one each large tensor beside it, so that a store keeps it once."""
    write_model(model, path, beside=WEIGHTS if is_apart(model) else None)


def write_linked(model: ModelProto, path: Path, root: Path, files: Iterable[Path]) -> None:
    """Write a model; of its tensors those that lie in `files` stay there, and the files are linked beside it.

    Args:
        root: the folder that `files` lie in, at any depth; beside `path` they lie the same way.
    """
    slim = copied(model)
    root, kept = root.resolve(), {file.resolve() for file in files}
    for tensor in slim.graph.initializer:
        if not refers_apart(tensor):
            continue
        file, offset, length = place_of(tensor)
        if file not in kept:
            continue
        name = file.relative_to(root)
        link_or_copy(file, path.parent / name)
        refer(tensor, ExternalPlace(location=name.as_posix(), offset=offset, length=length))
    write_model(slim, path)


def link_or_copy(file: Path, place: Path) -> None:
    """Have a file at another place too, whose folder is made; nothing to do where it is there already."""
    if place.exists() and place.samefile(file):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, place)
    except OSError:  # another disk
        shutil.copyfile(file, place)


def _linked(path: Path, folder: Path, name: str) -> str:
    """The name of a link to the file; empty where there can be none: on another disk, or to somebody else's file."""
    try:
        os.link(path, folder / name)
    except OSError:
        return ""
    return name


def weights_beside(path: Path) -> tuple[str, ...]:
    """The files of `write_shared` beside a model, as names relative to its folder."""
    folder = path.parent / WEIGHTS
    return tuple(f"{WEIGHTS}/{file.name}" for file in sorted(folder.glob("*.bin"))) if folder.is_dir() else ()


def _put(folder: Path, parts: Iterable[bytes]) -> Path:
    """A file named by its content."""
    folder.mkdir(exist_ok=True)
    with scratch_folder("tensor", inside=folder) as scratch:
        hasher = hashlib.sha256()
        draft = scratch / "tensor"
        with draft.open("wb") as stream:
            for part in parts:
                hasher.update(part)
                stream.write(part)
        file = folder / f"{hasher.hexdigest()[:32]}.bin"
        draft.replace(file)
    return file


def _message(model: ModelProto) -> Iterator[bytes]:
    """A model in one message with every tensor held, in pieces: fields that are written one after the other add up."""
    graph, rest = copied(model).graph, copied(model)
    del graph.initializer[:]
    rest.ClearField("graph")
    head = graph.SerializeToString(deterministic=True)
    tensors = [_tensor(tensor) for tensor in model.graph.initializer]
    sizes = [sum(len(part) if isinstance(part, bytes) else place_of(part)[2] for part in parts) for parts in tensors]
    tags = [tag(INITIALIZER) + varint(size) for size in sizes]
    yield rest.SerializeToString(deterministic=True)
    yield tag(GRAPH) + varint(len(head) + sum(map(len, tags)) + sum(sizes)) + head
    for mark, parts in zip(tags, tensors, strict=True):
        yield mark
        for part in parts:
            yield from [part] if isinstance(part, bytes) else chunks_of(part)


def _tensor(tensor: TensorProto) -> list[bytes | TensorProto]:
    """Its message; itself stands for the data that it refers to."""
    if not refers_apart(tensor):
        return [tensor.SerializeToString(deterministic=True)]
    plain = TensorProto()
    plain.CopyFrom(tensor)
    forget_place(plain)
    head = plain.SerializeToString(deterministic=True)
    return [head + tag(RAW_DATA) + varint(place_of(tensor)[2]), tensor]
