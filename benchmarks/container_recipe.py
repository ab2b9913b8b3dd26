"""The Dockerfile of a bundle, carried out without Docker: its own commands in a fresh virtual environment.

    python -m benchmarks.container_recipe [--keep FOLDER]

A wheel is built from this checkout, a build context is laid out as deploy/README.md says, and every COPY, the RUN that
installs, the HEALTHCHECK and the ENTRYPOINT of the Dockerfile are taken from its text: only `python` is replaced by the
environment's, /srv and /tmp/build by folders below the context, host and port by a free one on loopback. Then the
service must answer the golden texts as the bundle says, be healthy by the image's own check, hold exactly the listed
packages, and end with code 0 on SIGTERM. Not covered: the base image, useradd, and Docker itself. Takes about two
minutes, most of them installing.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.serve.making import make_bundle
from tests.shipping.deployment.test_deployment_files import instructions
from workbench.bundle import golden_batches, read_bundle

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="work here and leave everything")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        prove(given.keep)
        return
    with tempfile.TemporaryDirectory() as folder:
        prove(Path(folder))


def prove(folder: Path) -> None:
    """Lay out, build, serve, check. Raises when anything differs."""
    (folder / "made").mkdir()
    bundle = make_bundle(folder / "made")
    context, root = folder / "image", folder / "root"
    shutil.copytree(bundle, context / "bundle")
    build_wheel(folder, context / "wheels")
    python = fresh_python(folder / "venv")
    print("context and environment are there", flush=True)
    made = instructions((context / "bundle/deploy/Dockerfile").read_text(encoding="utf-8"))
    for name, value in made:
        if name == "COPY":
            copy(value, context, root)
        elif name == "RUN" and "pip install" in value:
            run(placed(value, python, root), folder / "install.log")
    check_packages(python, context / "bundle/deploy/requirements-serve.txt")
    print("installed exactly what is listed, and the workbench", flush=True)
    serve(made, python, root, folder / "service.log")


def build_wheel(folder: Path, to: Path) -> None:
    """From a copy of the checkout without what git ignores: building in place would leave files there."""
    source = folder / "checkout"
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    tracked = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True, timeout=60).stdout
    for name in tracked.decode().split("\0"):
        if name.startswith(("workbench/", "pyproject", "README", "LICENSE")) and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    python = fresh_python(folder / "builder")
    command = f"{shlex.quote(str(python))} -m pip wheel --no-deps --wheel-dir {shlex.quote(str(to))} ."
    run(command, folder / "wheel.log", cwd=source)


def fresh_python(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
    return folder / "bin/python"


def copy(value: str, context: Path, root: Path) -> None:
    source, to = [word for word in shlex.split(value) if not word.startswith("--")]
    target = root / to.lstrip("/")
    if (context / source).is_dir():
        shutil.copytree(context / source, target)
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(context / source, target)


def placed(command: str, python: Path, root: Path) -> str:
    """A command of the image, its Python and its folders being ours."""
    ours = re.sub(r"(?<![\w./-])python3?(?= )", shlex.quote(str(python)), command)
    return ours.replace("/tmp/build", str(root / "tmp/build")).replace("/srv/bundle", str(root / "srv/bundle"))


def run(command: str, log: Path, cwd: Path | None = None) -> None:
    with log.open("ab") as stream:
        code = subprocess.run(
            ["/bin/sh", "-ec", command], cwd=cwd, stdout=stream, stderr=stream, timeout=900
        ).returncode
    if code:
        raise SystemExit(f"{command}\nended with {code}:\n{log.read_text(errors='replace')[-2000:]}")


def check_packages(python: Path, listed: Path) -> None:
    said = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=json"], capture_output=True, check=True, timeout=120
    ).stdout
    found = {re.sub(r"[-_.]+", "-", entry["name"]).lower(): entry["version"] for entry in json.loads(said)}
    lines = [line.rstrip(" \\") for line in listed.read_text(encoding="utf-8").splitlines()]
    wanted = dict(line.split("==") for line in lines if not line.startswith(("#", " ")))
    extra = found.keys() - wanted.keys() - {"pip", "setuptools", "int8-workbench"}
    assert not extra, f"installed beyond the list: {sorted(extra)}"
    assert all(found.get(name) == version for name, version in wanted.items())
    assert "int8-workbench" in found


def serve(made: list[tuple[str, str]], python: Path, root: Path, log: Path) -> None:
    """The image's ENTRYPOINT and HEALTHCHECK."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    (entry,) = [json.loads(value) for name, value in made if name == "ENTRYPOINT"]
    (check,) = [json.loads(value.split(" CMD ", 1)[1]) for name, value in made if name == "HEALTHCHECK"]
    command = [str(python), *(placed(word, python, root) for word in entry[1:])]
    command = ["127.0.0.1" if word == "0.0.0.0" else port if word == "8000" else word for word in command]
    health = [str(python), *(word.replace("8000", port) for word in check[1:])]
    environment = {"PATH": os.environ["PATH"], "HOME": str(root / "tmp"), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as stream:
        service = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, cwd=root / "srv")
    try:
        until = time.monotonic() + 120
        while subprocess.run(health, env=environment, stderr=subprocess.DEVNULL, timeout=60).returncode:
            if service.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"not healthy:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.5)
        print("healthy by the image's own check", flush=True)
        answered(root / "srv/bundle", int(port))
        service.send_signal(signal.SIGTERM)
        code = service.wait(60)
        assert code == 0, code
        print("golden texts answered as the bundle says; SIGTERM: code 0")
    finally:
        if service.poll() is None:
            service.kill()
            service.wait()


def answered(bundle: Path, port: int) -> None:
    """Each golden text's label is the one of its golden output."""
    found = read_bundle(bundle)
    for batch in golden_batches(found):
        (logits,) = batch.outputs.values()
        for text, row in zip(batch.texts, logits, strict=True):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            body = json.dumps({"text": text})
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            connection.close()
            assert answer["label"] == found.manifest.labels[int(row.argmax())], answer


if __name__ == "__main__":
    main()
