"""A systemd unit: the service in a virtual environment of the host, without a container."""

from __future__ import annotations

from workbench.bundle.signing import TRUSTED_VARIABLE
from workbench.shipping.deployment.container import serve_arguments, serving_shell
from workbench.shipping.deployment.facts import STOP_S, TRUSTED_KEYS, Facts

HOME = "/opt/workbench"


def systemd_unit(facts: Facts) -> str:
    """The unit's text. Only the main process gets SIGTERM: it drains, then ends its workers itself."""
    bundle, python = f"{HOME}/bundles/{facts.slug}", f"{HOME}/venv/bin/python"
    start = " ".join((python, *serve_arguments(bundle, host="127.0.0.1")))
    user, device_lines = "DynamicUser=yes\nPrivateDevices=yes\n", ""
    if facts.of_target.before_serving:
        # systemd expands $ and % in ExecStart itself
        shell = serving_shell(facts.of_target, bundle, host="127.0.0.1", python=python).replace("$", "$$")
        start = f"/bin/bash -c '{shell}' serve"
    devices = facts.of_target.devices
    if devices is not None:
        user = f"# the group that owns {devices.group_owns}\nUser={devices.group}\nGroup={devices.group}\n"
        device_lines = (
            f"Environment={devices.log_variable}={facts.log_folder}\n"
            f"ReadWritePaths={facts.log_folder}\n"
            "DevicePolicy=closed\n"
        ) + "".join(f"DeviceAllow={name} rw\n" for name in (devices.card, *devices.others))
    return f"""\
{facts.header}# Copy it to /etc/systemd/system/, then: systemctl daemon-reload; systemctl enable --now {facts.slug}
[Unit]
Description={facts.slug} (workbench serve, candidate {facts.candidate})
After=network.target
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=exec
ExecStart={start}
{user}WorkingDirectory={HOME}
Environment=PYTHONUNBUFFERED=1
{_trusted(facts)}# WORKBENCH_API_KEY=… stands in this file, readable by root only; without the file no key is asked for,
# as it listens on loopback alone. Beyond that it does not start without a key, this one or those of --api-keys FILE
EnvironmentFile=-/etc/workbench/{facts.slug}.env
Restart=on-failure
RestartSec=2
# 2: the arguments are wrong, and will be the next time
RestartPreventExitStatus=2
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={STOP_S}
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
{device_lines}# {facts.memory_origin}
MemoryMax={facts.memory_mb * 2}M

[Install]
WantedBy=multi-user.target
"""


def _trusted(facts: Facts) -> str:
    if not facts.signed:
        return ""
    return (
        "# the bundle is signed: it is served only where this file lists the key that signed it\n"
        f"Environment={TRUSTED_VARIABLE}={TRUSTED_KEYS}\n"
    )
