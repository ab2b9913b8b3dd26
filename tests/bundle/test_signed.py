"""Signed bundles: what is required, what each refusal says, and what a user types."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bundle.making import needs_minisign, reseal
from tests.serve.making import make_bundle, running
from tests.shipping.deployment.manifests import TARGETS, manifest
from workbench.bundle.opened import read_bundle
from workbench.bundle.signing import SecretKey, make_keys, read_secret_key, read_trusted_keys
from workbench.bundle.verify import verify_bundle
from workbench.bundle.write import sign_bundle
from workbench.commands import serve
from workbench.shipping.deployment import DeploymentSettings, deployment_files
from workbench.shipping.promotion import Limits, evaluate
from workbench.values.errors import BundleError


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with plain keys ours and other, and files that trust the first, the second, and revoke the first."""
    root = tmp_path_factory.mktemp("keys")
    ours, other = (make_keys(root / f"{name}.key", root / f"{name}.pub") for name in ("ours", "other"))
    (root / "trusted").write_text(f"{ours.text} release 2026\n")
    (root / "strangers").write_text(f"{other.text} somebody else\n")
    (root / "revoked").write_text(f"revoked {ours.text} laptop lost\n{other.text} new\n")
    return root


def secret(keys: Path, name: str = "ours") -> SecretKey:
    return read_secret_key(keys / f"{name}.key")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Path:
    return make_bundle(tmp_path_factory.mktemp("made"), secret=secret(keys))


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "bundle"))


def verified(folder: Path, keys: Path, name: str = "trusted") -> Any:
    return verify_bundle(folder, replay=False, trusted=read_trusted_keys(keys / name))


def test_a_signed_bundle_passes_and_says_whose_it_is(pristine: Path, keys: Path) -> None:
    report = verified(pristine, keys)

    assert "WORKBENCH_TRUSTED_KEYS" in (pristine / "deploy" / "kubernetes.yaml").read_text()
    assert report.signature == f"signed by {secret(keys).public.name} (release 2026)"
    assert report.signature in report.summary
    assert "its signature was not checked: no --trusted-keys" in verify_bundle(pristine, replay=False).summary


def test_no_signature_or_one_of_a_key_that_is_not_listed_or_revoked_is_refused(folder: Path, keys: Path) -> None:
    name = secret(keys).public.name
    with pytest.raises(BundleError, match=f"by key {name}, which .*strangers does not list"):
        verified(folder, keys, "strangers")
    with pytest.raises(BundleError, match=rf"by key {name} \(laptop lost\), which .*revoked lists as revoked"):
        verified(folder, keys, "revoked")
    (folder / "SHA256SUMS.minisig").unlink()
    with pytest.raises(BundleError, match=r"it is not signed, and .*trusted says whose signatures are required"):
        verified(folder, keys)
    assert "not signed" in verify_bundle(folder, replay=False).summary


def test_whoever_changes_a_file_and_its_sums_cannot_sign(folder: Path, keys: Path) -> None:
    """Nor does a signature of another bundle fit, where the sums are signed again by hand: by the words beside it."""
    sign_bundle(folder, "another", read_bundle(folder).manifest_sha256, secret(keys))
    with pytest.raises(BundleError, match=r'made for another bundle: workbench bundle .*"another"'):
        verified(folder, keys)
    (folder / "labels.json").write_text('["a", "b", "c"]')
    reseal(folder, {})
    verify_bundle(folder, replay=False)
    with pytest.raises(BundleError, match="minisig is not valid: it does not fit the content"):
        verified(folder, keys)


@pytest.mark.parametrize("put", ["garbage", "pipe", "link", "large", "folder"])
def test_what_is_no_signature_is_refused_where_none_is_required_too(pristine: Path, tmp_path: Path, put: str) -> None:
    folder = Path(shutil.copytree(pristine, tmp_path / "bundle"))
    file = folder / "SHA256SUMS.minisig"
    (tmp_path / "elsewhere").write_bytes(file.read_bytes())
    file.unlink()
    if put == "pipe":
        os.mkfifo(file)
    elif put == "link":
        file.symlink_to(tmp_path / "elsewhere")
    elif put == "folder":
        (file / "below").mkdir(parents=True)
    else:
        file.write_bytes(b"x" * (100 if put == "garbage" else 7 << 20))
    with pytest.raises(BundleError, match=r"SHA256SUMS\.minisig"):
        verify_bundle(folder, replay=False)


def test_the_gate_asks_for_the_signature_of_both(folder: Path, pristine: Path, keys: Path, tmp_path: Path) -> None:
    (folder / "SHA256SUMS.minisig").unlink()
    trusted = read_trusted_keys(keys / "trusted")

    for new, current, failing in ((folder, None, "sound"), (pristine, folder, "current is sound")):
        verdict = evaluate(new, current, limits=Limits(), trusted=trusted)
        (failed,) = (check for check in verdict.checks if check.outcome == "failed")
        assert failed.name == failing
        assert "it is not signed" in failed.reason
    sound = evaluate(pristine, None, limits=Limits(), trusted=trusted).checks[0]
    assert sound.outcome == "passed"
    assert "signed by" in sound.reason


# --- commands ---------------------------------------------------------------------------------------------------------


def workbench(*arguments: object, module: str = "workbench", **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_bundle_is_signed_again_by_a_command_and_checked(
    folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve.sign(folder, keys / "other.key")

    assert "signed by key" in capsys.readouterr().out
    code, said = workbench("verify", folder, "--no-replay", "--trusted-keys", keys / "other.pub")
    assert (code, "; signed by" in said) == (0, True), said


def test_the_environment_requires_a_signature_of_a_service(folder: Path, keys: Path) -> None:
    trusted = str(keys / "strangers")
    code, said = workbench(folder, "--port", 0, module="workbench.serve", WORKBENCH_TRUSTED_KEYS=trusted)

    assert code == 1
    assert f"which {trusted} does not list" in said


def test_a_service_starts_with_a_trusted_signature_and_logs_whose_it_is(pristine: Path, keys: Path) -> None:
    with running(pristine, "--trusted-keys", str(keys / "trusted")) as service:
        (event,) = (e for e in service.events() if e["event"] == "signature")
        assert service.predict({"text": "anna paid"}).status == 200

    assert event["key"].endswith("(release 2026)")
    assert read_bundle(pristine).manifest_sha256 in event["comment"]


def test_keys_are_made_by_a_command_that_prints_the_line_to_trust(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve.keygen(tmp_path / "release.key", None)

    line = capsys.readouterr().out.splitlines()[-1]
    (tmp_path / "trusted").write_text(line)
    (key,) = read_trusted_keys(tmp_path / "trusted").keys
    assert key.name == "WHOSE IT IS"
    assert key.public.text in (tmp_path / "release.pub").read_text()


@needs_minisign
def test_operations_check_a_bundle_with_minisign_and_sha256sum_alone(pristine: Path, keys: Path) -> None:
    command = f"minisign -V -H -p {keys / 'ours.pub'} -m SHA256SUMS && sha256sum --strict --quiet -c SHA256SUMS"
    done = subprocess.run(command, shell=True, cwd=pristine, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert read_bundle(pristine).manifest_sha256 in done.stdout


# --- deployment -------------------------------------------------------------------------------------------------------


def test_deployment_files_of_a_signed_bundle_carry_the_trusted_keys() -> None:
    for target in TARGETS:
        files, plain = (
            deployment_files(manifest(target), DeploymentSettings(signed=True)),
            deployment_files(manifest(target)),
        )
        for name in ("Dockerfile", "loan-intent-small.service", "compose.yaml", "kubernetes.yaml", "README.md"):
            assert "/etc/workbench/trusted" in files[name], name
            assert "TRUSTED" not in plain[name], name
