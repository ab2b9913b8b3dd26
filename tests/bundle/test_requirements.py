"""The list of packages is closed, exact, free of what only searching needs, and binds pip to the sums of wheels."""

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.shipping.deployment.manifests import TARGETS, manifest
from workbench.bundle.requirements import Lock, closure, left_out, pins, read_lock, requirements, serving_pins
from workbench.shipping.deployment import DeploymentSettings, deployment_files, unpinned
from workbench.values.documents.canonical import file_digest
from workbench.values.errors import ConfigError, ToolchainError

SUM = "ab" * 32


def listed(target: str, made_with: dict[str, str] | None = None) -> dict[str, str]:
    return dict(pin.split("==") for pin in pins(target, made_with or {}))


def test_each_package_is_pinned_to_what_is_installed_here_and_the_list_is_closed_under_what_packages_declare() -> None:
    for target in TARGETS:
        found = listed(target)

        assert {"httptools", "tokenizers", "numpy", "onnxruntime", "prometheus-client"} <= found.keys()
        assert ("openvino" in found) == (target == "openvino")
        for name, version in found.items():
            assert importlib.metadata.version(name) == version
            for text in importlib.metadata.requires(name) or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                    wanted = canonicalize_name(needed.name)
                    assert wanted in found or wanted in left_out(), f"{name} needs {wanted}"
                    assert wanted not in found or found[wanted] in needed.specifier
    own = listed("onnxruntime", {"onnxruntime": "1.2.3", "platform": "Linux x86_64"})  # the bundle's go first
    assert (own["onnxruntime"], "platform" in own) == ("1.2.3", False)
    with pytest.raises(ToolchainError, match="no-such-package is not installed here"):
        closure(("no-such-package",))


# --- sums of wheels ---------------------------------------------------------------------------------------------------


def locked(*pins: str) -> Lock:
    return Lock(file=Path("mine.txt"), sums=dict.fromkeys(pins, (SUM,)))


def test_requirements_have_the_sums_of_all_or_of_none_and_say_so(tmp_path: Path) -> None:
    hashed = requirements(["a-b==1", "b==2"], locked("a-b==1", "b==2"))
    assert hashed.count(f"--hash=sha256:{SUM}") == 2
    assert "--require-hashes" in hashed
    plain = requirements(["a-b==1", "b==2"], locked("a-b==1"))
    assert "--hash" not in plain.replace("--generate-hashes", "")
    assert "# NO HASHES: the sums of b==2 are not in mine.txt." in plain
    assert [line for line in plain.splitlines() if not line.startswith("#")] == ["a-b==1", "b==2"]

    (tmp_path / "lock.txt").write_text(f"# by uv\n--index-url https://x\n{hashed.replace('a-b', 'A_b')}    # via c\n")
    assert read_lock(tmp_path / "lock.txt").sums == locked("a-b==1", "b==2").sums
    for body in ("[]", "a==1", f"--hash=sha256:{SUM}", "a==1 --hash=sha256:short", f"a==1 --hash=sha256:{SUM}0"):
        (tmp_path / "lock.txt").write_text(body)
        with pytest.raises(ConfigError, match=r"lock\.txt: --lock: has no requirement with a hash"):
            read_lock(tmp_path / "lock.txt")


def test_the_shipped_sums_are_of_serving_packages() -> None:
    lock = read_lock()

    assert {"numpy", "onnxruntime", "cryptography"} <= {pin.partition("==")[0] for pin in lock.sums}
    assert lock.missing(tuple(lock.sums)) == ()


def test_files_with_hashes_are_installed_with_hashes() -> None:
    for target in TARGETS:
        made = manifest(target)
        everything = locked(*serving_pins(made))
        for lock, option in ((everything, " --no-deps --require-hashes -r"), (locked("x==1"), " --no-deps -r")):
            files = deployment_files(made, DeploymentSettings(lock=lock))
            assert option in files["Dockerfile"]
            assert option in files["README.md"]
            assert ("--hash=" in files["requirements-serve.txt"]) == ("require" in option)


def test_an_image_is_named_by_a_digest_and_what_is_not_pinned_is_said() -> None:
    for target in ("onnxruntime", "ascend910b3"):
        pinned = f"registry.local:5000/base:3.11@sha256:{SUM}"
        plain = deployment_files(manifest(target))["Dockerfile"]
        fixed = deployment_files(manifest(target), DeploymentSettings(base_image=pinned))["Dockerfile"]

        assert "# NOT PINNED" in plain
        assert "sha256:" not in re.sub("NAME@sha256:…", "", plain)
        assert "# NOT PINNED" not in fixed
        assert re.search(rf"^ARG \w+={re.escape(pinned)}\nFROM \$\{{\w+\}}$", fixed, re.MULTILINE)
    for image in ("python:3.11", "python@sha256:abc", f"a b@sha256:{SUM}", f"x@sha256:{SUM}\nRUN x"):
        with pytest.raises(ConfigError, match="names no image by its digest"):
            DeploymentSettings(base_image=image)
    made = manifest()
    pinned = DeploymentSettings(lock=locked(*serving_pins(made)), base_image=f"a@sha256:{SUM}")

    assert unpinned(made, pinned) == []
    packages, image = unpinned(made, DeploymentSettings(lock=locked("x==1")))
    assert "requirements-serve.txt has no hashes: mine.txt lacks cffi==" in packages
    assert "--base-image" in image


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


def test_pip_takes_the_wheels_of_these_sums_and_no_other(index: Path, tmp_path: Path) -> None:
    pure = wheel(index, "pure_part", "py3-none-any")
    lock = Lock(file=Path("mine.txt"), sums={"pure-part==1.0": (file_digest(pure),)})
    (tmp_path / "requirements.txt").write_text(requirements(["pure-part==1.0"], lock))

    assert installed(tmp_path, "first") == 0
    wheel(index, "pure_part", "py3-none-any", "print('another')")
    assert installed(tmp_path, "second") != 0


def installed(folder: Path, to: str) -> int:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--target", str(folder / to), "-r", str(folder / "requirements.txt")]
    command += ["--platform", "manylinux_2_17_aarch64", "--only-binary", ":all:", "--python-version", "3.11"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 or "DO NOT MATCH THE HASHES" in done.stderr, done.stderr
    return done.returncode
