"""Kubernetes, from outside and under changing load: an Ingress, and a HorizontalPodAutoscaler."""

from __future__ import annotations

from workbench.shipping.deployment.facts import Facts

DOMAIN = "example.com"
MOST_REPLICAS = 4


def ingress(facts: Facts) -> str:
    """TLS ends here, and only what clients need is let through: /predict and /info."""
    host = f"{facts.slug}.{DOMAIN}"
    paths = "".join(
        f"          - path: {path}\n            pathType: Exact\n            backend:\n"
        f"              service: {{name: {facts.slug}, port: {{name: http}}}}\n"
        for path in ("/predict", "/info")
    )
    return f"""\
{facts.header}# Write your own name instead of {host}, here and as one more argument of the container
# (--allowed-host={host}), since the service answers under names it knows only. Metrics, health and docs stay inside.
#   kubectl create secret tls {facts.slug}-tls --cert=tls.crt --key=tls.key
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {facts.slug}
  labels: {{app: {facts.slug}}}
  annotations:
    # of ingress-nginx; another controller has its own names. Answers may wait in the queue, bodies hold arrays
    nginx.ingress.kubernetes.io/proxy-read-timeout: "60"
    nginx.ingress.kubernetes.io/proxy-body-size: 8m
spec:
  ingressClassName: nginx
  tls:
    - hosts: [{host}]
      secretName: {facts.slug}-tls
  rules:
    - host: {host}
      http:
        paths:
{paths}"""


def autoscaler(facts: Facts) -> str:
    """By the processors where these compute, else by rows that wait: a card's service leaves its host idle."""
    waiting = f"""\
    # rows that wait in a pod; more than one full batch means that another one would help. It takes an adapter that
    # gives Prometheus' series to Kubernetes (prometheus-adapter): custom.metrics.k8s.io
    - type: Pods
      pods:
        metric: {{name: workbench_queue_depth}}
        target: {{type: AverageValue, averageValue: "{max(1, facts.max_batch)}"}}
"""
    processors = """\
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: 70}
"""
    on_cards = facts.of_target.devices is not None
    most = "each pod takes a card: as many as you have for it" if on_cards else "as many as your nodes hold"
    return f"""\
{facts.header}# The Deployment's own `replicas` must be taken out when this is applied: both would set it.
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {facts.slug}
  labels: {{app: {facts.slug}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {facts.slug}}}
  minReplicas: 1
  maxReplicas: {MOST_REPLICAS} # {most}
  metrics:
{waiting if on_cards else processors}  behavior:
    # a pod replays the golden samples in every worker before it answers, so it comes late: none goes in a hurry
    scaleUp:
      stabilizationWindowSeconds: 30
      policies: [{{type: Pods, value: 1, periodSeconds: 60}}]
    scaleDown:
      stabilizationWindowSeconds: 300
      policies: [{{type: Pods, value: 1, periodSeconds: 120}}]
"""
