"""Kubernetes: a Deployment and a Service, with a card as a resource where the target computes on cards."""

from __future__ import annotations

from workbench.bundle.signing import TRUSTED_VARIABLE
from workbench.shipping.deployment.facts import (
    ADMIN_PORT,
    PORT,
    SERVICE_ID,
    STOP_S,
    TRUSTED_FOLDER,
    TRUSTED_KEYS,
    Facts,
)
from workbench.targets.description import Devices

KEYS = "/etc/workbench/keys"
PRE_STOP_S = 5
"""Longer than a node's proxy usually needs to learn that a pod is going; only then does the service stop accepting."""


def kubernetes(facts: Facts) -> str:
    """Two YAML documents. The image must be pushed to a registry of yours first."""
    devices = facts.of_target.devices
    group = SERVICE_ID if devices is None else devices.group_id
    cpu = facts.workers * facts.threads + 1
    card, mounts, volumes = ("", "", "") if devices is None else _card(facts, devices)
    return f"""\
{facts.header}# Replace the image by the name in your registry. Examples: adapt them. Without the Secret no pod starts:
#   workbench api-key first-client >> keys.txt
#   kubectl create secret generic {facts.slug} --from-file=keys.txt
#   kubectl apply -f kubernetes.yaml
# A changed Secret reaches the pods within a minute or two; the service reads its keys again without a restart.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {facts.slug}
  labels: {{app: {facts.slug}}}
spec:
  replicas: 1
  selector:
    matchLabels: {{app: {facts.slug}}}
  template:
    metadata:
      labels: {{app: {facts.slug}, candidate: "{facts.candidate}"}}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "{ADMIN_PORT}"
        prometheus.io/path: /metrics
    spec:
      terminationGracePeriodSeconds: {STOP_S + PRE_STOP_S}
      automountServiceAccountToken: false
      securityContext:
        runAsNonRoot: true
        runAsUser: {SERVICE_ID}
        runAsGroup: {group}{_group_comment(facts)}
        seccompProfile: {{type: RuntimeDefault}}
      containers:
        - name: serve
          image: {facts.slug}:{facts.candidate}
          ports:
            - {{name: http, containerPort: {PORT}}}
            # health and metrics, without a key: in no Service, and to be closed to other pods by a NetworkPolicy
            - {{name: admin, containerPort: {ADMIN_PORT}}}
          # appended to the image's command: the keys, and the names by which the Service is called
          args:
            - --api-keys={KEYS}/keys.txt
            - --allowed-host={facts.slug}
            - --allowed-host={facts.slug}.$(POD_NAMESPACE)
            - --allowed-host={facts.slug}.$(POD_NAMESPACE).svc
            - --allowed-host={facts.slug}.$(POD_NAMESPACE).svc.cluster.local
          env:
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef: {{fieldPath: metadata.namespace}}
{_environment(facts)}          # ready: every worker replayed the golden samples, and one can answer
          startupProbe:
            httpGet: {{path: /health/ready, port: admin}}
            periodSeconds: 2
            failureThreshold: 150
          readinessProbe:
            httpGet: {{path: /health/ready, port: admin}}
            periodSeconds: 5
            timeoutSeconds: 3
            failureThreshold: 2
          # live: the front end's event loop turns; a process of its own says so, whatever the load. Workers that died
          # are no reason to start the pod again: the service starts them, and ends itself where it cannot
          livenessProbe:
            httpGet: {{path: /health/live, port: admin}}
            periodSeconds: 10
            timeoutSeconds: 3
            failureThreshold: 3
          lifecycle:
            preStop:
              exec: {{command: [sleep, "{PRE_STOP_S}"]}}
          # {facts.workers} x {facts.threads} threads of the model and the front end; memory: {facts.memory_origin}
          resources:
            requests:
              cpu: "{cpu}"
              memory: {facts.memory_mb}Mi
{card}            limits:
              memory: {facts.memory_mb * 2}Mi
{card}          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {{drop: [ALL]}}
          volumeMounts:
            - {{name: tmp, mountPath: /tmp}}
            - {{name: keys, mountPath: {KEYS}, readOnly: true}}
{_trusted_mount(facts)}{mounts}      volumes:
        - {{name: tmp, emptyDir: {{}}}}
        - {{name: keys, secret: {{secretName: {facts.slug}}}}}
{_trusted_volume(facts)}{volumes}---
apiVersion: v1
kind: Service
metadata:
  name: {facts.slug}
  labels: {{app: {facts.slug}}}
spec:
  selector: {{app: {facts.slug}}}
  ports:
    - {{name: http, port: {PORT}, targetPort: http}}
"""


def _group_comment(facts: Facts) -> str:
    devices = facts.of_target.devices
    if devices is None:
        return ""
    return f"  # gid of {devices.group} on the nodes, which owns {devices.group_owns} [assumed]"


def _environment(facts: Facts) -> str:
    found = {}
    if facts.of_target.devices is not None:
        found[facts.of_target.devices.log_variable] = facts.log_folder
    if facts.signed:
        found[TRUSTED_VARIABLE] = TRUSTED_KEYS
    return "".join(f"            - {{name: {name}, value: {value}}}\n" for name, value in found.items())


def _trusted_mount(facts: Facts) -> str:
    if not facts.signed:
        return ""
    return f"            - {{name: trusted-keys, mountPath: {TRUSTED_FOLDER}, readOnly: true}}\n"


def _trusted_volume(facts: Facts) -> str:
    if not facts.signed:
        return ""
    return (
        "        # whose signatures count: kubectl create configmap trusted-keys --from-file=keys=trusted-keys\n"
        "        - {name: trusted-keys, configMap: {name: trusted-keys}}\n"
    )


def _card(facts: Facts, devices: Devices) -> tuple[str, str, str]:
    """The resource's lines, the mounts and the volumes."""
    card = "".join(f"              {line}\n" for line in devices.resource)
    names = [path.strip("/").replace("/", "-").replace(".", "-").replace("_", "-").lower() for path in devices.mounts]
    mounts = f"            - {{name: log, mountPath: {facts.log_folder}}}\n" + "".join(
        f"            - {{name: {name}, mountPath: {path}, readOnly: true}}\n"
        for name, path in zip(names, devices.mounts, strict=True)
    )
    volumes = f"        # {devices.log_note}\n"
    volumes += "        - {name: log, emptyDir: {}}\n"
    volumes += f"        # the host's driver; {devices.mounts_unneeded}\n" + "".join(
        f"        - {{name: {name}, hostPath: {{path: {path}}}}}\n"
        for name, path in zip(names, devices.mounts, strict=True)
    )
    return card, mounts, volumes
