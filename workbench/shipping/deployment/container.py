"""Dockerfile and compose file.

The build context is a folder with `bundle/` and `wheels/` side by side, so that any Docker version builds it and the
bundle itself stays as it was written. The image holds both: what runs is what was verified.
"""

from __future__ import annotations

import json

from workbench.bundle.signing import TRUSTED_VARIABLE
from workbench.shipping.deployment.facts import ADMIN_PORT, DIGEST_HINT, PORT, SERVICE_ID, STOP_S, TRUSTED_KEYS, Facts

CANN_IMAGE = "quay.io/ascend/cann:{cann}-910b-ubuntu22.04-py3.11"
"""Public images of CANN [github.com/Ascend/cann-container-image]; 8.5.0 is published there under this very tag."""
CPU_IMAGE = "python:3.11-slim"
DEVICES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
"""What every process on an NPU needs besides its /dev/davinciN [vendor's container guide]."""
DRIVER_MOUNTS = (
    "/usr/local/Ascend/driver",
    "/usr/local/Ascend/add-ons",
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/etc/ascend_install.info",
)
SET_ENV = ("/usr/local/Ascend/cann/set_env.sh", "/usr/local/Ascend/ascend-toolkit/set_env.sh")
"""Where CANN 8.5 and older ones have the script that sets their paths."""
_INSTALL = """\
COPY bundle/deploy/requirements-serve.txt /tmp/build/
COPY wheels/{wheel} /tmp/build/
RUN {python} -m pip install --no-cache-dir --no-deps{hashes} -r /tmp/build/requirements-serve.txt \\
 && {python} -m pip install --no-cache-dir --no-deps /tmp/build/{wheel}
"""
_PORTS = f"{PORT} {ADMIN_PORT}"
_RUN = """\
EXPOSE {ports}
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 CMD {health}
ENTRYPOINT {command}
"""


def dockerfile(facts: Facts) -> str:
    """For an x86-64 or ARM CPU, or on CANN's image for an Ascend bundle. The service's user is not root."""
    return facts.header + (_ascend(facts) if facts.ascend else _cpu(facts))


def _cpu(facts: Facts) -> str:
    command = ["python", *serve_arguments("/srv/bundle", host="0.0.0.0")]
    return f"""\
# docker build -f bundle/deploy/Dockerfile -t {facts.slug} .      in a folder with bundle/ and wheels/ (see README.md)
{_base("BASE_IMAGE", facts.base_image or CPU_IMAGE, facts)}ENV PYTHONUNBUFFERED=1 HOME=/tmp
{_install(facts, "python")}RUN groupadd --gid {SERVICE_ID} workbench \\
 && useradd --uid {SERVICE_ID} --gid {SERVICE_ID} --no-create-home --shell /usr/sbin/nologin workbench
COPY --chown={SERVICE_ID}:{SERVICE_ID} bundle /srv/bundle
USER {SERVICE_ID}:{SERVICE_ID}
WORKDIR /srv
{_trusted(facts)}{_RUN.format(ports=_PORTS, health=_health("python"), command=json.dumps(command))}"""


def _ascend(facts: Facts) -> str:
    base = _base("CANN_IMAGE", facts.base_image or CANN_IMAGE.format(cann=facts.cann), facts)
    command = ["/bin/bash", "-c", ascend_shell("/srv/bundle", host="0.0.0.0"), "serve"]
    return f"""\
# docker build -f bundle/deploy/Dockerfile -t {facts.slug} .      in a folder with bundle/ and wheels/ (see README.md)
# Any image with CANN {facts.cann} or newer, the kernels of the 910B and Python 3.11 will do; name yours with
# --build-arg CANN_IMAGE=… . An OM runs on the CANN it was made with or a newer one.
{base}# The group that owns /dev/davinci* on the host: `getent group HwHiAiUser | cut -d: -f3` [assumed: 1000].
ARG HWHIAI_GID=1000
ENV PYTHONUNBUFFERED=1 HOME=/tmp
USER root
{_install(facts, "python3")}RUN (getent group ${{HWHIAI_GID}} \\
     || groupadd --gid ${{HWHIAI_GID}} HwHiAiUser) \\
 && useradd --uid {SERVICE_ID} --gid ${{HWHIAI_GID}} --no-create-home --shell /usr/sbin/nologin workbench
# OM files are readable by their owner only
COPY --chown={SERVICE_ID}:${{HWHIAI_GID}} bundle /srv/bundle
USER {SERVICE_ID}:${{HWHIAI_GID}}
WORKDIR /srv
{_trusted(facts)}{_RUN.format(ports=_PORTS, health=_health("python3"), command=json.dumps(command))}"""


def serve_arguments(bundle: str, *, host: str) -> list[str]:
    """Arguments of Python that serve a bundle with its own settings."""
    served = ["-m", "workbench.serve", bundle, "--host", host, "--port", str(PORT)]
    return [*served, "--admin-host", host, "--admin-port", str(ADMIN_PORT), "--metrics", "admin", "--docs", "admin"]


def ascend_shell(bundle: str, *, host: str, python: str = "python3") -> str:
    """A line of bash that sets CANN's environment and becomes the service, so that signals reach it.

    The driver's libraries come from the host; `set_env.sh` does not always know them inside a container.
    """
    driver = "/usr/local/Ascend/driver/lib64"
    scripts = " ".join(SET_ENV)
    return (
        f'export LD_LIBRARY_PATH={driver}:{driver}/common:{driver}/driver:"$LD_LIBRARY_PATH"; '
        f'for script in {scripts}; do if [ -r "$script" ]; then . "$script"; break; fi; done; '
        f'exec {python} {" ".join(serve_arguments(bundle, host=host))} "$@"'
    )


def _install(facts: Facts, python: str) -> str:
    hashes = " --require-hashes" if facts.hashed else ""
    return _INSTALL.format(wheel=facts.wheel, python=python, hashes=hashes)


def _base(argument: str, image: str, facts: Facts) -> str:
    """The image to start from: by its digest, or with a word about its missing."""
    warning = (
        ""
        if facts.base_image
        else f"# NOT PINNED: a tag may mean another image tomorrow. {DIGEST_HINT}; then build with\n"
        f"# --build-arg {argument}=NAME@sha256:… , or export with --base-image.\n"
    )
    return f"{warning}ARG {argument}={image}\nFROM ${{{argument}}}\n"


def _trusted(facts: Facts) -> str:
    if not facts.signed:
        return ""
    return (
        "# The bundle is signed: the service starts only where this file, mounted, lists the key that signed it\n"
        f"ENV {TRUSTED_VARIABLE}={TRUSTED_KEYS}\n"
    )


def _health(python: str) -> str:
    code = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{ADMIN_PORT}/health/ready', timeout=4)"
    return json.dumps([python, "-c", code])


def compose(facts: Facts) -> str:
    """One container on one machine, published on loopback only; on Ascend with one card."""
    return f"""\
{facts.header}# docker compose -f bundle/deploy/compose.yaml up, in a folder with bundle/ and wheels/ (see README.md)
name: {facts.slug}
services:
  {facts.slug}:
    image: {facts.slug}:{facts.candidate}
    build:
      context: ../..
      dockerfile: bundle/deploy/Dockerfile
    init: true
    restart: on-failure
    stop_signal: SIGTERM
    stop_grace_period: {STOP_S}s
    # loopback only; put a proxy with TLS in front before other hosts may ask
    ports: ["127.0.0.1:{PORT}:{PORT}", "127.0.0.1:{ADMIN_PORT}:{ADMIN_PORT}"]
    environment:
      # handed on from the shell, and must be set there: inside its container the service listens beyond loopback
      WORKBENCH_API_KEY: ${{WORKBENCH_API_KEY:?the key that X-API-Key must hold}}
{_compose_ascend_environment(facts)}{_compose_trusted(facts)}    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    # {facts.memory_origin}
    mem_limit: {facts.memory_mb * 2}m
{_compose_devices(facts)}"""


def log_folder(facts: Facts) -> str:
    return f"/var/log/npu/{facts.slug}"


def _compose_ascend_environment(facts: Facts) -> str:
    return f"      ASCEND_PROCESS_LOG_PATH: {log_folder(facts)}\n" if facts.ascend else ""


def _compose_trusted(facts: Facts) -> str:
    """A named config, so that the mounts of an Ascend service stay a list of their own."""
    if not facts.signed:
        return ""
    return f"    configs:\n      - {{source: trusted-keys, target: {TRUSTED_KEYS}}}\n"


def _compose_devices(facts: Facts) -> str:
    if not facts.ascend:
        return _compose_configs(facts)
    devices = "".join(f"      - {name}\n" for name in ("/dev/davinci0", *DEVICES))
    mounts = "".join(f"      - {path}:{path}:ro\n" for path in DRIVER_MOUNTS)
    return f"""\
    # one card for each container; a second one takes /dev/davinci1 and another port
    devices:
{devices}    # driver and tools of the host; remove lines whose path your host does not have
    volumes:
{mounts}      - {log_folder(facts)}:{log_folder(facts)}
{_compose_configs(facts)}"""


def _compose_configs(facts: Facts) -> str:
    if not facts.signed:
        return ""
    return (
        "# whose signatures count: put the file there; it is no part of the bundle\n"
        "configs:\n  trusted-keys:\n    file: ../../trusted-keys\n"
    )
