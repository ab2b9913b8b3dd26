"""The table of wheels: what it must hold, and that requirements made with it bind pip."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.shipping.deployment.manifests import TARGETS, manifest
from workbench.bundle.requirements import (
    SHIPPED,
    Lock,
    Wheel,
    make_lock,
    read_lock,
    requirements,
)
from workbench.shipping.deployment import DeploymentSettings, deployment_files, unpinned
from workbench.values.documents.canonical import file_digest
from workbench.values.errors import ConfigError

SUM = "ab" * 32


def locked(*pins: str, architectures: tuple[str, ...] = ("any",)) -> Lock:
    wheels = [Wheel(file=f"{a}.whl", sha256=SUM, architecture=a) for a in architectures]
    return Lock(file=Path("mine.json"), wheels={pin: tuple(wheels) for pin in pins})


def test_the_shipped_table_has_wheels_for_both_architectures() -> None:
    lock = read_lock()

    assert lock.file == SHIPPED
    assert lock.missing(tuple(lock.wheels)) == ()
    files = [wheel.file for wheels in lock.wheels.values() for wheel in wheels]
    assert len(files) == len(set(files))
    for pin, wheels in lock.wheels.items():
        name, version = pin.split("==")
        for wheel in wheels:
            assert wheel.file.lower().replace("_", "-").startswith(f"{name}-{version}-"), wheel.file
            assert wheel.architecture == "any" or wheel.architecture in wheel.file


def test_requirements_have_the_sums_of_all_or_of_none_and_say_so() -> None:
    hashed = requirements(["a==1", "b==2"], locked("a==1", "b==2"))
    assert hashed.count(f"--hash=sha256:{SUM}") == 2
    assert "--require-hashes" in hashed
    plain = requirements(["a==1", "b==2"], locked("a==1"))
    assert "--hash" not in plain
    assert "# NO HASHES: the sums of b==2 are not in the table mine.json." in plain
    assert [line for line in plain.splitlines() if not line.startswith("#")] == ["a==1", "b==2"]


def test_files_with_hashes_are_installed_with_hashes() -> None:
    for target in TARGETS:
        made = manifest(target)
        everything = locked(*deployment_pins(target))
        for lock, option in ((everything, " --no-deps --require-hashes -r"), (locked("x==1"), " --no-deps -r")):
            files = deployment_files(made, DeploymentSettings(lock=lock))
            assert option in files["Dockerfile"]
            assert option in files["README.md"]
            assert ("--hash=" in files["requirements-serve.txt"]) == ("require" in option)


def deployment_pins(target: str) -> tuple[str, ...]:
    from workbench.shipping.deployment import serving_pins

    return serving_pins(manifest(target))


def test_an_image_is_named_by_a_digest_or_called_not_pinned() -> None:
    for target in ("onnxruntime", "ascend910b3"):
        pinned = f"registry.local:5000/base:3.11@sha256:{SUM}"
        plain = deployment_files(manifest(target))["Dockerfile"]
        fixed = deployment_files(manifest(target), DeploymentSettings(base_image=pinned))["Dockerfile"]

        assert "# NOT PINNED" in plain
        assert "sha256:" not in re.sub("NAME@sha256:…", "", plain)
        assert "# NOT PINNED" not in fixed
        assert re.search(rf"^ARG \w+={re.escape(pinned)}\nFROM \$\{{\w+\}}$", fixed, re.MULTILINE)


def test_an_image_without_a_digest_is_refused() -> None:
    for image in (
        "python:3.11",
        "python@sha256:abc",
        "a b@sha256:" + SUM,
        "x@sha256:" + SUM + "\nRUN x",
    ):
        with pytest.raises(ConfigError, match="names no image by its digest"):
            DeploymentSettings(base_image=image)


def test_what_is_not_pinned_is_said() -> None:
    made = manifest()
    pinned = DeploymentSettings(lock=locked(*deployment_pins("onnxruntime")), base_image=f"a@sha256:{SUM}")

    assert unpinned(made, pinned) == []
    packages, image = unpinned(made, DeploymentSettings(lock=locked("x==1")))
    assert "requirements-serve.txt has no hashes: mine.json lacks cffi==" in packages
    assert "--base-image" in image


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    for body in (
        "[]",
        '{"version": 2, "packages": {}}',
        '{"version": 1}',
        '{"version": 1, "packages": {"a==1": 3}}',
        '{"version": 1, "packages": {"a==1": [{"file": "a", "sha256": "short", "architecture": "any"}]}}',
        '{"version": 1, "packages": {"a": []}}',
        "nonsense",
    ):
        (tmp_path / "lock.json").write_text(body)

        with pytest.raises(ConfigError, match=r"lock\.json"):
            read_lock(tmp_path / "lock.json")


# --- pip itself, over an index that is a folder -----------------------------------------------------------------------


def wheel(folder: Path, name: str, tag: str, content: str = "") -> Path:
    file = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{name}/__init__.py", content)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: {tag}\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return file


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip, and nothing else, looks for wheels in."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_says_which_wheels_it_takes_and_then_takes_no_other(index: Path, tmp_path: Path) -> None:
    pure = wheel(index, "pure_part", "py3-none-any")
    tags = ("x86_64", "aarch64")
    binary = {a: wheel(index, "binary", f"cp311-cp311-manylinux_2_17_{a}", a) for a in tags}
    pins = ["binary==1.0", "pure-part==1.0"]

    lock = make_lock(pins, tmp_path / "lock.json", lambda line: None, newest_glibc=(39,))

    assert read_lock(tmp_path / "lock.json").wheels == lock.wheels
    assert {w.sha256 for w in lock.wheels["binary==1.0"]} == {file_digest(file) for file in binary.values()}
    assert [w.architecture for w in lock.wheels["pure-part==1.0"]] == ["any"]
    (tmp_path / "requirements.txt").write_text(requirements(pins, lock))
    assert installed(tmp_path, "first") == 0
    pure.unlink()
    wheel(index, "pure_part", "py3-none-any", "print('another')")
    assert installed(tmp_path, "second") != 0


def installed(folder: Path, to: str) -> int:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--target", str(folder / to), "-r", str(folder / "requirements.txt")]
    command += ["--platform", "manylinux_2_17_aarch64", "--only-binary", ":all:", "--python-version", "3.11"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 or "DO NOT MATCH THE HASHES" in done.stderr, done.stderr
    return done.returncode
