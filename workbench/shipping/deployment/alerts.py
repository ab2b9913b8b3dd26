"""Prometheus' alert rules over the names of `workbench.serve.metrics` and `workbench.serve.device_gauges`."""

from __future__ import annotations

import json

from workbench.shipping.deployment.facts import Facts

_HOT_C = 85
"""[assumed]: cards throttle some degrees above; take your vendor's limit."""


def alerts(facts: Facts) -> str:
    """A rule file for `rule_files:` of Prometheus; the rules of cards only where the target computes on some."""
    rules = [
        ("WorkbenchDown", 'up{job="workbench"} == 0', "2m", "critical", "The service does not answer its scrapes."),
        ("WorkbenchNoWorker", "workbench_no_worker_seconds > 10", "0m", "critical", "No worker can answer."),
        (
            "WorkbenchErrors",
            "sum by (instance) (rate(workbench_errors_total[5m])) "
            "/ sum by (instance) (rate(workbench_requests_received_total[5m])) > 0.01",
            "5m",
            "warning",
            "More than 1 % of the requests were refused or failed.",
        ),
        (
            "WorkbenchQueueFull",
            'increase(workbench_errors_total{kind="queue_full"}[5m]) > 0',
            "0m",
            "warning",
            "Requests were refused since the queue was full: more load than this service can answer.",
        ),
        (
            "WorkbenchWorkersDie",
            "sum by (instance) (increase(workbench_worker_restarts_total[15m])) > 2",
            "0m",
            "warning",
            "Workers die again and again; the service's log says of what.",
        ),
    ]
    if facts.p99_ms is not None:
        limit_s = 1.2 * facts.p99_ms / 1000
        rules.append(
            (
                "WorkbenchSlow",
                "histogram_quantile(0.99, sum by (le, instance) (rate(workbench_request_duration_seconds_bucket[5m]))) "
                f"> {limit_s:.3g}",
                "10m",
                "warning",
                f"P99 is more than 20 % above {facts.p99_ms:.3g} ms, {facts.p99_origin}.",
            )
        )
    if facts.of_target.devices is not None:
        rules += [
            (
                "WorkbenchDeviceHot",
                f"workbench_device_temperature_celsius > {_HOT_C}",
                "5m",
                "warning",
                f"A card is above {_HOT_C} °C [assumed limit]; hot cards lower their clock.",
            ),
            (
                "WorkbenchDeviceMemory",
                "workbench_device_memory_used_bytes / workbench_device_memory_total_bytes > 0.95",
                "5m",
                "warning",
                "A card's memory is almost full, by this service or another.",
            ),
            (
                "WorkbenchDeviceUnread",
                "sum by (instance, device) (increase(workbench_device_reading_failures_total[10m])) > 2",
                "0m",
                "warning",
                "A card cannot be read: it may hang, or its driver. The service may still answer.",
            ),
        ]
    groups = "".join(
        f"      - alert: {name}\n        expr: {json.dumps(expression)}\n        for: {wait}\n"
        f"        labels: {{severity: {severity}, service: {facts.slug}}}\n"
        f"        annotations: {{summary: {json.dumps(summary, ensure_ascii=False)}}}\n"
        for name, expression, wait, severity, summary in rules
    )
    head = f"{facts.header}# prometheus.yml names it: rule_files: [alerts.yml]\n"
    return f"{head}groups:\n  - name: {facts.slug}\n    rules:\n{groups}"
