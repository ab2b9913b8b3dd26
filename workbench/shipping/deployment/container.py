"""Dockerfile and compose file.

The build context is a folder with `bundle/` and `wheels/` side by side, so that any Docker version builds it and the
bundle itself stays as it was written. The image holds both: what runs is what was verified.
"""

from __future__ import annotations

import json

from workbench.bundle.signing import TRUSTED_VARIABLE
from workbench.shipping.deployment.facts import ADMIN_PORT, DIGEST_HINT, PORT, SERVICE_ID, STOP_S, TRUSTED_KEYS, Facts
from workbench.targets.description import DeploymentFacts

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
    """On the target's image, for x86-64 or ARM. The service's user is not root."""
    of_target = facts.of_target
    devices = of_target.devices
    note = "".join(f"# {line}\n" for line in of_target.base_note)
    group, before, root, join = str(SERVICE_ID), "", "", f"groupadd --gid {SERVICE_ID} workbench"
    files_note = ""
    if devices is not None:
        group = f"${{{devices.group_argument}}}"
        before = (
            f"# The group that owns {devices.group_owns} on the host: `getent group {devices.group} | cut -d: -f3` "
            f"[assumed: {devices.group_id}].\nARG {devices.group_argument}={devices.group_id}\n"
        )
        root, files_note = "USER root\n", f"# {devices.files_note}\n"
        join = f"(getent group {group} \\\n     || groupadd --gid {group} {devices.group})"
    command = json.dumps(_command(facts))
    return f"""\
{facts.header}# docker build -f bundle/deploy/Dockerfile -t {facts.slug} .      \
in a folder with bundle/ and wheels/ (see README.md)
{note}{_base(facts)}{before}ENV PYTHONUNBUFFERED=1 HOME=/tmp
{root}{_install(facts)}RUN {join} \\
 && useradd --uid {SERVICE_ID} --gid {group} --no-create-home --shell /usr/sbin/nologin workbench
{files_note}COPY --chown={SERVICE_ID}:{group} bundle /srv/bundle
USER {SERVICE_ID}:{group}
WORKDIR /srv
{_trusted(facts)}{_RUN.format(ports=_PORTS, health=_health(of_target.python), command=command)}"""


def _command(facts: Facts) -> list[str]:
    of_target = facts.of_target
    if of_target.before_serving:
        return ["/bin/bash", "-c", serving_shell(of_target, "/srv/bundle", host="0.0.0.0"), "serve"]
    return [of_target.python, *serve_arguments("/srv/bundle", host="0.0.0.0")]


def serve_arguments(bundle: str, *, host: str) -> list[str]:
    """Arguments of Python that serve a bundle with its own settings."""
    served = ["-m", "workbench.serve", bundle, "--host", host, "--port", str(PORT)]
    return [*served, "--admin-host", host, "--admin-port", str(ADMIN_PORT), "--metrics", "admin", "--docs", "admin"]


def serving_shell(of_target: DeploymentFacts, bundle: str, *, host: str, python: str | None = None) -> str:
    """A line of bash that sets the vendor's environment and becomes the service, so that signals reach it."""
    start = f'exec {python or of_target.python} {" ".join(serve_arguments(bundle, host=host))} "$@"'
    return "; ".join((*of_target.before_serving, start))


def _install(facts: Facts) -> str:
    hashes = " --require-hashes" if facts.hashed else ""
    return _INSTALL.format(wheel=facts.wheel, python=facts.of_target.python, hashes=hashes)


def _base(facts: Facts) -> str:
    """The image to start from: by its digest, or with a word about its missing."""
    argument, image = facts.of_target.base_argument, facts.base_image or facts.of_target.base_image
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
    """One container on one machine, published on loopback only; with one card where the target has cards."""
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
{_compose_log(facts)}{_compose_trusted(facts)}    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    # {facts.memory_origin}
    mem_limit: {facts.memory_mb * 2}m
{_compose_devices(facts)}"""


def _compose_log(facts: Facts) -> str:
    devices = facts.of_target.devices
    return f"      {devices.log_variable}: {facts.log_folder}\n" if devices is not None else ""


def _compose_trusted(facts: Facts) -> str:
    """A named config, so that the mounts of a card's driver stay a list of their own."""
    if not facts.signed:
        return ""
    return f"    configs:\n      - {{source: trusted-keys, target: {TRUSTED_KEYS}}}\n"


def _compose_devices(facts: Facts) -> str:
    card = facts.of_target.devices
    if card is None:
        return _compose_configs(facts)
    devices = "".join(f"      - {name}\n" for name in (card.card, *card.others))
    mounts = "".join(f"      - {path}:{path}:ro\n" for path in card.mounts)
    return f"""\
    # one card for each container; a second one takes {card.second_card} and another port
    devices:
{devices}    # driver and tools of the host; remove lines whose path your host does not have
    volumes:
{mounts}      - {facts.log_folder}:{facts.log_folder}
{_compose_configs(facts)}"""


def _compose_configs(facts: Facts) -> str:
    if not facts.signed:
        return ""
    return (
        "# whose signatures count: put the file there; it is no part of the bundle\n"
        "configs:\n  trusted-keys:\n    file: ../../trusted-keys\n"
    )
