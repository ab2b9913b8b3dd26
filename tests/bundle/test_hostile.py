"""Bundles made by an attacker: sums that fit, and every field of the manifest bent in every way."""

import copy
import io
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.bundle.making import BENT, Keys, body_of, places, put, reseal, seal, use
from tests.serve.making import make_bundle
from workbench.api.bundle import load_bundle
from workbench.bundle.golden import golden_batches, read_npz
from workbench.bundle.opened import read_bundle
from workbench.bundle.paths import name_fault, open_inside
from workbench.bundle.readme import provenance
from workbench.bundle.verify import check_files, verify_bundle
from workbench.graph.door import SECONDS_VARIABLE
from workbench.serve.worker import open_proved
from workbench.shipping.promotion import Limits
from workbench.shipping.promotion.accuracy import float_check
from workbench.values.errors import BundleError, WorkbenchError

PATH_FIELDS: tuple[Keys, ...] = (
    ("artifact", "files", 0, "file"),
    ("text", "tokenizer"),
    ("golden",),
    ("golden_texts",),
    ("record",),
    ("outcomes",),
)
OUTSIDE = ("../secret", "/etc/passwd", "model/../../secret", "./README.md", "", "model//model.onnx", "link", "model/")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def bent(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose manifest is replaced again and again."""
    return Path(shutil.copytree(pristine, tmp_path_factory.mktemp("bent") / "bundle"))


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("of another tenant")
    return Path(shutil.copytree(pristine, tmp_path / "bundle"))


# --- names ------------------------------------------------------------------------------------------------------------


def test_no_field_of_a_manifest_leads_out_of_the_bundle(pristine: Path, folder: Path) -> None:
    for keys in PATH_FIELDS:
        for name in OUTSIDE:
            body = body_of(pristine)
            put(body, keys, {"file": name, "samples_sha256": ""} if keys == ("outcomes",) else name)
            (folder / "link").unlink(missing_ok=True)
            (folder / "link").symlink_to(folder.parent / "secret")
            seal(folder, body)

            with pytest.raises(BundleError, match=r"leads outside|not among|characters|not those"):
                read_bundle(folder)


def test_a_folder_on_the_way_may_be_no_link(folder: Path) -> None:
    (folder / "model").rename(folder.parent / "elsewhere")
    (folder / "model").symlink_to(folder.parent / "elsewhere")

    with pytest.raises(BundleError, match=r"model/model.onnx is behind model, which is a link"):
        verify_bundle(folder, replay=False)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path.parent)  # the names of sockets are short
        made.bind(path.name)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(("make", "words"), [(_fifo, "a pipe"), (_socket, "a socket"), (_folder, "a folder")])
@pytest.mark.parametrize("name", ["tokenizer.json", "manifest.json", "SHA256SUMS"])
def test_what_is_no_plain_file_is_named_and_not_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[Path], None], words: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / name).unlink()
    make(folder / name)

    with pytest.raises(BundleError, match=f"{name} is {words}; a bundle holds plain files"):
        verify_bundle(folder, replay=False)


@pytest.mark.parametrize("make", [_fifo, _folder, Path.touch, lambda path: path.symlink_to("/dev/zero")])
def test_whatever_else_lies_in_the_folder_is_named(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "golden" / "more")

    with pytest.raises(BundleError, match=r"golden/more/? does not belong to the bundle"):
        verify_bundle(folder, replay=False)


def test_a_manifest_without_end_is_not_read(folder: Path) -> None:
    with (folder / "manifest.json").open("r+b") as stream:
        stream.truncate(1 << 40)  # a sparse file

    with pytest.raises(BundleError, match="more than 64 MiB"):
        read_bundle(folder)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=20) | st.text(alphabet="./\\a ~\0é-", max_size=12))
def test_a_name_that_is_let_through_stays_inside(name: str) -> None:
    if not name_fault(name):
        assert os.path.normpath(name) == name
        assert not Path(name).is_absolute()
        assert ".." not in Path(name).parts
        assert name.isprintable()


def test_a_link_exchanged_for_a_checked_folder_leads_nowhere(folder: Path) -> None:
    """The descriptor of a folder that was checked is what the next part is opened in."""
    descriptor = open_inside(folder, "model/model.onnx")
    with os.fdopen(descriptor, "rb") as stream:
        shutil.move(folder / "model", folder / "moved")
        (folder / "model").symlink_to(folder.parent)
        assert stream.read(4) == (folder / "moved" / "model.onnx").read_bytes()[:4]
    with pytest.raises(BundleError, match=r"is a link|which is a link"):
        open_inside(folder, "model/secret")


# --- sums -------------------------------------------------------------------------------------------------------------

SUM = "0" * 64


def test_sums_that_list_less_or_more_than_the_manifest_are_refused(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    for changed in (
        lines[1:],
        [*lines, f"{SUM}  z\n"],
        [*lines, f"{SUM}  ../outside\n"],
        [*lines, lines[0]],
        [line.replace("README", "LIESME") for line in lines],
        [line.replace("  README", " *README") for line in lines],
        [line.upper() for line in lines],
        [*lines, "na\xefve\n"],
        lines[::-1],
        ["".join(lines).rstrip()],
    ):
        (folder / "SHA256SUMS").write_text("".join(changed), encoding="latin-1")
        with pytest.raises(BundleError, match=r"differ on|does not match"):
            read_bundle(folder)


# --- values -----------------------------------------------------------------------------------------------------------


def test_no_bent_field_ends_in_a_traceback(bent: Path, pristine: Path) -> None:
    """Every place of the manifest, with bent values in turn: refused, or without harm.

    `tests/hostile/manifests.py` does it by the thousand, with replay.
    """
    sound = body_of(pristine)
    sound["outcomes"] = {"file": "README.md", "samples_sha256": "0" * 64}
    sound["record"] = "README.md"
    tried = refused = 0
    for number, keys in enumerate(places(sound)):
        for turn in range(len(BENT) if len(keys) == 1 else 1):
            body = copy.deepcopy(sound)
            put(body, keys, BENT[(number + 4 * turn) % len(BENT) if len(keys) > 1 else turn])
            seal(bent, body)
            tried += 1
            try:
                bundle = read_bundle(bent)
                provenance(bundle)
                float_check(bundle.manifest, Limits())
            except WorkbenchError:
                refused += 1

    assert tried > 400
    assert refused > 0.8 * tried


def test_a_value_without_reason_is_refused_by_name(pristine: Path, folder: Path) -> None:
    for keys, value, words in (
        (("tolerance", "absolute"), 1e9, "absolute tolerance 1e\\+09 is more than 5%"),
        (("tolerance", "relative"), 0.5, "tolerance.relative = 0.5 is outside 0 to 0.05"),
        (("tolerance", "relative"), -1e-6, "tolerance.relative"),
        (("golden_batches",), 10**12, "golden_batches = 1e\\+12 is outside 1 to 4096"),
        (("golden_batches",), 2, "golden samples cannot be used"),
        (("service", "workers"), 10**6, "service.workers"),
        (("service", "max_batch_size"), 10**9, "service.max_batch_size"),
        (("service", "batch_timeout_ms"), 1e9, "batch_timeout_ms"),
        (("candidate", "serving", "intra_op_threads"), 10**6, "another candidate|candidate_id|intra_op_threads"),
        (("text", "max_length"), 10**9, "text.max_length"),
        (("text", "bins"), list(range(1, 5000)), "text.bins"),
        (("text", "inputs", 0, "dtype"), "object", "no type of token ids"),
        (("model", "inputs", 0, "dtype"), "f8,f8", "the type 'f8,f8'"),
        (("model", "inputs", 0, "shape"), [-4], "the shape of tensor"),
        (("task",), "anything", "the task 'anything'"),
        (("name",), "a/b", "cannot name a folder"),
        (("created_at",), "yesterday", "no time"),
        (("evaluations", 0, "measurement", "latency", "drift"), 0.0, "no ratio"),
        (("artifact", "files", 0, "sha256"), SUM, "not those of the bundle's file"),
        (("artifact", "files", 0, "size_bytes"), 1, "not those of the bundle's file"),
        (("artifact", "files"), [], "artifact.files has 0 files"),
        (("artifact", "target"), "cuda", "none of"),
        (("candidate_id",), SUM, "not the id of the candidate"),
        (("version",), True, "bundle version True is unknown"),
        (("version",), 3, "bundle version 3 is unknown; workbench .* reads 1 and 2"),
        (("surprise",), 1, "unknown key 'surprise'"),
        (("tolerance",), {"absolute": "much"}, "manifest.tolerance"),
    ):
        body = body_of(pristine)
        put(body, keys, value)
        seal(folder, body)

        with pytest.raises(BundleError, match=words):
            use(folder)


def test_json_that_readers_disagree_on_is_refused(folder: Path) -> None:
    for text, words in (
        ('{"version": 2, "version": 1}', "'version' is given more than once"),
        ('{"version": 2, "name": NaN}', "NaN is no number"),
        ('{"version": 2, "name": 1e999}', "beyond a double"),
        ("[" * 100_000, "cannot be used"),
        ('{"a":' * 80 + "1" + "}" * 80, "nested deeper"),
        ('{"version": ' + "9" * 5000 + "}", "cannot be used"),
        ("[]", "cannot be used"),
        ("", "cannot be used"),
        ('{"version": 2, "name": "\\ud800"}', "half of a surrogate pair"),
    ):
        seal(folder, {}, text)

        with pytest.raises(BundleError, match=words):
            read_bundle(folder)


# --- golden samples ---------------------------------------------------------------------------------------------------


def test_golden_samples_that_prove_nothing_are_refused(folder: Path) -> None:
    for arrays, words in (
        ({}, "no rows"),
        ({"0/feeds/input_ids": np.zeros((0, 4), np.int64), "0/outputs/logits": np.zeros((0, 3))}, "no rows"),
        ({"7/feeds/input_ids": np.zeros((1, 4))}, "there is a batch '7'"),
        ({"-1/feeds/input_ids": np.zeros((1, 4))}, "there is a batch '-1'"),
        ({"0/else/input_ids": np.zeros((1, 4))}, "cannot be used"),
        ({"0": np.zeros((1, 4))}, "cannot be used"),
        ({"0/feeds/input_ids": np.zeros((2, 4)), "0/outputs/logits": np.full((2, 3), np.nan)}, "not finite"),
        ({"0/feeds/input_ids": np.array(["a", "b"]), "0/outputs/logits": np.ones((2, 3))}, "no numbers"),
        ({"0/feeds/input_ids": np.zeros((5, 4)), "0/outputs/logits": np.ones((5, 3))}, "2 texts stand for 5 rows"),
    ):
        np.savez(folder / "golden" / "samples.npz", **arrays)
        reseal(folder, {})

        with pytest.raises(BundleError, match=words):
            verify_bundle(folder)


def npy(shape: str, dtype: str = "<f8", body: bytes = b"") -> bytes:
    """An array file whose header says what it likes."""
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + body


def test_arrays_that_ask_for_more_than_they_hold_are_refused(folder: Path) -> None:
    for member, words in (
        (npy("(1000000000000,)"), "not as large as its header"),
        (npy("(-1,)"), "shape"),
        (npy("(1,)", "|O", b"\x80\x04."), "the type object"),
        (npy("(0,) * 99"), "cannot be used"),
        (npy("()", body=bytes(8)), "cannot be used"),
        (b"\x93NUMPY\x09\x00", "version"),
        (b"nonsense", "cannot be used"),
    ):
        with zipfile.ZipFile(folder / "golden" / "samples.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("0/feeds/input_ids.npy", member)
            archive.writestr("0/outputs/logits.npy", npy("(2, 3)", body=bytes(48)))
        reseal(folder, {})

        with pytest.raises(BundleError, match=words):
            golden_batches(read_bundle(folder))


def test_golden_texts_of_another_form_are_refused(folder: Path) -> None:
    for texts in (
        "{}",
        "[1]",
        "[[1]]",
        '[["a", 2]]',
        "[[]]]",
        "nonsense",
        '[["a"], ["b"]]',
    ):
        (folder / "golden" / "texts.json").write_text(texts)
        reseal(folder, {})

        with pytest.raises(BundleError, match="golden samples cannot be used"):
            verify_bundle(folder)


# --- between checking and opening -------------------------------------------------------------------------------------


def test_a_file_that_changed_since_it_was_checked_is_not_used(folder: Path) -> None:
    bundle = read_bundle(folder)
    check_files(bundle)
    for name in ("golden/samples.npz", "model/model.onnx", "tokenizer.json"):
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    with pytest.raises(BundleError, match="another sha256"):
        golden_batches(bundle)
    with pytest.raises(BundleError, match="another sha256"):
        bundle.check_model()


def test_a_worker_serves_no_other_bundle_than_the_one_that_was_checked(folder: Path) -> None:
    first = read_bundle(folder).manifest_sha256
    reseal(folder, {"about": "exchanged"})

    with pytest.raises(BundleError, match="another bundle than when this service started"):
        read_bundle(folder, manifest_sha256=first)


@pytest.mark.parametrize("place", ["../secret", "/etc/hostname", "link"])
def test_a_model_does_not_read_weights_from_outside_the_bundle(folder: Path, place: str) -> None:
    """The manifest is not the only file with names in it: ONNX names files of weights."""
    file = folder / "model" / "model.onnx"
    proto = onnx.load(file)
    table = next(t for t in proto.graph.initializer if t.name == "table")
    table.ClearField("raw_data")
    table.ClearField("float_data")
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value=place)
    onnx.save(proto, file)
    (folder / "secret").write_bytes(bytes(10_000))
    reseal(folder, {})
    (folder / "secret").unlink()

    with pytest.raises(BundleError, match="does not run on this machine"):
        verify_bundle(folder)


def test_a_model_that_grows_without_end_is_opened_by_a_process_with_limits_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "600")  # a slow machine takes longer to fill memory than opening may take
    file = folder / "model" / "model.onnx"
    proto = onnx.load(file)
    last = "one"
    proto.graph.initializer.append(helper.make_tensor(last, TensorProto.INT64, [1], [1]))
    for level in range(31):  # constants, which the optimizer would write out: 16 GiB
        proto.graph.node.append(helper.make_node("Concat", [last, last], [f"grown_{level}"], axis=0))
        last = f"grown_{level}"
    proto.graph.output.append(helper.make_tensor_value_info(last, TensorProto.INT64, [None]))
    onnx.save(proto, file)
    reseal(folder, {})

    with pytest.raises(BundleError, match=r"does not run on this machine: .* needs more than .* GiB of memory"):
        verify_bundle(folder)


def test_golden_samples_that_fill_the_memory_end_in_a_process_with_limits(folder: Path) -> None:
    """By a size that no look at the file, and no sample but its own, tells."""
    file = folder / "model" / "model.onnx"
    proto = onnx.load(file)
    graph = proto.graph
    graph.initializer.append(helper.make_tensor("many", TensorProto.INT64, [1], [3_000_000_000]))
    graph.initializer.append(helper.make_tensor("none", TensorProto.INT64, [1], [0]))
    graph.node.append(helper.make_node("ReduceMax", ["input_ids"], ["id"], keepdims=0))
    graph.node.append(helper.make_node("Mul", ["id", "none"], ["zero"]))
    graph.node.append(helper.make_node("Add", ["zero", "many"], ["sized"]))
    graph.node.append(helper.make_node("ConstantOfShape", ["sized"], ["filled"]))
    graph.node.append(helper.make_node("ReduceMax", ["filled"], ["grown"], keepdims=0))
    graph.output.append(helper.make_tensor_value_info("grown", TensorProto.FLOAT, []))
    onnx.save(proto, file)
    reseal(folder, {})

    with pytest.raises(BundleError, match=r"does not run on this machine: .* needs more than .* GiB of memory"):
        verify_bundle(folder)
    with pytest.raises(BundleError, match=r"needs more than .* GiB of memory"):
        load_bundle(folder)


def test_the_command_line_refuses_a_hostile_bundle_in_one_line(folder: Path) -> None:
    body = body_of(folder)
    body["golden"] = "../secret"
    seal(folder, body)

    command = [sys.executable, "-m", "workbench.serve", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 1
    assert "golden: the name '../secret' leads outside the bundle" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_what_is_unpacked_is_bounded() -> None:
    content = io.BytesIO()
    np.savez_compressed(content, zeros=np.zeros((1 << 10, 1 << 10), order="F"))
    assert len(content.getvalue()) < 1 << 14

    assert read_npz(content.getvalue())["zeros"].shape == (1 << 10, 1 << 10)
    with pytest.raises(ValueError, match="1 arrays of 8 MiB are more than a bundle holds"):
        read_npz(content.getvalue(), most_bytes=1 << 20)


@pytest.mark.parametrize("task", ["classification", "ner"])
def test_labels_that_do_not_fit_the_outputs_are_refused(task: str, tmp_path: Path) -> None:
    folder = make_bundle(tmp_path, task)
    verify_bundle(folder)
    sound = body_of(folder)
    more = ["B-X", "I-X"]
    for labels in (sound["labels"][:1], [*sound["labels"], *more], [sound["labels"][0]] * len(sound["labels"])):
        seal(folder, {**sound, "labels": labels})
        with pytest.raises(BundleError, match="labels"):
            verify_bundle(folder)
        with pytest.raises(BundleError, match="labels"):
            open_proved(read_bundle(folder), 1, "warn")
    seal(folder, {**sound, "task": "ner" if task == "classification" else "classification"})
    with pytest.raises(BundleError, match=r"axes|BIO"):
        verify_bundle(folder)
