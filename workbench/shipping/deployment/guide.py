"""deploy/README.md: what each file is for, and the commands in their order."""

from __future__ import annotations

from workbench.bundle.signing import TRUSTED_VARIABLE
from workbench.shipping.deployment.facts import ADMIN_PORT, GRACE_S, PORT, SERVICE_ID, TRUSTED_KEYS, Facts


def guide(facts: Facts) -> str:
    """Markdown for whoever deploys the bundle."""
    emulated = (
        "**EMULATED: this bundle was made without a device. These files are for a rehearsal, their figures of memory "
        "assumptions.**\n\n"
        if facts.emulated
        else ""
    )
    hashes = " --require-hashes" if facts.hashed else ""
    return f"""\
# Deploying {facts.slug}

{emulated}Examples, written from the bundle's manifest (candidate {facts.candidate}, target `{facts.target}`). They \
were not run on your machine: read them, then adapt names, users and limits.

| file | for |
|---|---|
| `requirements-serve.txt` | what serving imports, exact versions; nothing that only searching needs |
| `Dockerfile`, `compose.yaml` | a container on one machine |
| `kubernetes.yaml` | Deployment and Service |
| `ingress.yaml`, `autoscaler.yaml` | Kubernetes from outside, and under changing load |
| `{facts.slug}.service` | systemd, without a container |
| `prometheus.yml`, `alerts.yml`, `grafana-dashboard.json` | scraping `/metrics`, being called, and looking at it |

The workbench itself is no package of a public index. Make its wheel once, in a checkout of version {facts.workbench}:

```
python3.11 -m pip wheel --no-deps --wheel-dir wheels .       # gives wheels/{facts.wheel}
```

## Container

```
mkdir image && cp -r BUNDLE image/bundle && cp -r wheels image/wheels && cd image
WORKBENCH_API_KEY=... docker compose -f bundle/deploy/compose.yaml up --build
curl http://127.0.0.1:{ADMIN_PORT}/health/ready
```

Without compose: `docker build -f bundle/deploy/Dockerfile -t {facts.slug}:{facts.candidate} .`{_docker_run(facts)}

## Without a container

```
python3.11 -m venv /opt/workbench/venv
/opt/workbench/venv/bin/pip install --no-deps{hashes} -r BUNDLE/deploy/requirements-serve.txt
/opt/workbench/venv/bin/pip install --no-deps wheels/{facts.wheel}
cp -r BUNDLE /opt/workbench/bundles/{facts.slug} && {_readable(facts)}
cp BUNDLE/deploy/{facts.slug}.service /etc/systemd/system/
systemctl daemon-reload && systemctl enable --now {facts.slug}
```
{_signature_notes(facts)}{_target_notes(facts)}
## What to know

- It listens on loopback unless told otherwise, and beyond it only with a key: `WORKBENCH_API_KEY` in its \
environment, or `--api-keys FILE` with a line for each client (`workbench api-key NAME` prints one); the file is read \
again when it changes. Clients send the key as `X-API-Key`. It speaks no TLS: put a proxy in front.
- Requests must name a host it knows: loopback, the address they arrive at, or an `--allowed-host`.
- Port {ADMIN_PORT} is for probes and Prometheus alone and asks for no key. `/health/live` there is answered by a \
process of its own, whatever the load; it fails when the service hangs. `/health/ready` is 200 only after every worker \
replayed the bundle's golden samples on that very machine. On a \
machine that differs in what kernels are chosen by (chip, instruction sets, release of the runtime) it does not start; \
`--policy warn`, appended to the command of the container or the unit, serves all the same and says so.
- SIGTERM drains: requests already accepted are answered for up to {GRACE_S} s, new ones get 503. Whoever stops the \
service must wait longer than that; these files do.
- {_pins(facts)}
- Memory of the host, {facts.memory_mb} MB for {facts.workers} worker{"s" if facts.workers > 1 else ""}: \
{facts.memory_origin}. Limits are twice that.
"""


def _pins(facts: Facts) -> str:
    """What of an image is fixed, and what is not."""
    packages = (
        "pip takes no other wheel than those whose sums `requirements-serve.txt` lists"
        if facts.hashed
        else "`requirements-serve.txt` has no hashes (it says why), so pip takes what the index gives for a version"
    )
    image = (
        "The base image is named by its digest"
        if facts.base_image
        else "The base image is named by a tag, which may mean another one tomorrow; the Dockerfile says how to pin it"
    )
    return f"{image}; {packages}. The workbench's wheel is yours: keep its sum where you build."


def _signature_notes(facts: Facts) -> str:
    if not facts.signed:
        return ""
    return f"""
## The signature

The bundle is signed (`SHA256SUMS.minisig`), and these files make the service ask for it: `{TRUSTED_VARIABLE}` names \
`{TRUSTED_KEYS}`, a file that lists whose signatures count, one public key a line with a name behind it. Without the \
file, or with another key in it, the service does not start. It comes from whoever signs, by another way than the \
bundle, and lies in neither bundle nor image:

- compose: the file `trusted-keys` beside `bundle/`
- Kubernetes: `kubectl create configmap trusted-keys --from-file=keys=trusted-keys`
- systemd: `install -D -m 644 trusted-keys {TRUSTED_KEYS}`
- by hand: `minisign -V -p key.pub -m SHA256SUMS && sha256sum -c SHA256SUMS`, or \
`workbench verify . --trusted-keys FILE`

A line `revoked KEY why` takes a key back.
"""


def _docker_run(facts: Facts) -> str:
    run = f", then\n`docker run --init --read-only --tmpfs /tmp -e WORKBENCH_API_KEY -p 127.0.0.1:{PORT}:{PORT}"
    if facts.of_target.devices is not None:
        return "; `compose.yaml` lists the devices and mounts that `docker run` then needs."
    return f"{run} {facts.slug}:{facts.candidate}`."


def _readable(facts: Facts) -> str:
    """Files of a card may be written readable by their owner only."""
    folder, devices = f"/opt/workbench/bundles/{facts.slug}", facts.of_target.devices
    return f"chown -R {devices.group}: {folder}" if devices is not None else f"chmod -R a+rX {folder}"


def _target_notes(facts: Facts) -> str:
    of_target = facts.of_target
    if not of_target.notes:
        return ""
    notes = [text.format(service_id=SERVICE_ID, log_folder=facts.log_folder) for text in of_target.notes]
    return "\n".join(("", f"## {of_target.heading}", "", *(f"- {text}" for text in notes), ""))
