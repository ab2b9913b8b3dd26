"""Prometheus' scrape configuration and a Grafana dashboard over the names of `workbench.serve.metrics`."""

from __future__ import annotations

import json
from typing import Any

from workbench.shipping.deployment.facts import ADMIN_PORT, Facts

_SELECT = '{job=~"$job", instance=~"$instance"}'
_WINDOW = "[$__rate_interval]"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT = 8, 8


def prometheus(facts: Facts) -> str:
    """prometheus.yml that scrapes one service on this host."""
    return f"""\
{facts.header}# Under Kubernetes the pod's annotations (prometheus.io/…) take the place of static_configs.
rule_files: [alerts.yml]
scrape_configs:
  - job_name: workbench
    metrics_path: /metrics
    scrape_interval: 15s
    static_configs:
      - targets: ["127.0.0.1:{ADMIN_PORT}"]
        labels:
          service: {facts.slug}
"""


def grafana_dashboard(facts: Facts) -> str:
    """JSON to import into Grafana 10 or newer; it asks for a Prometheus data source and shows every service in it."""
    panels = [
        _table(
            "What is served (emulated = true: figures of no device)",
            f"workbench_bundle_info{_SELECT}",
            without=("Time", "Value", "__name__", "job"),
        ),
        _lines("Requests by status", "reqps", ("{{status}}", f"sum by (status) ({_rate('workbench_requests_total')})")),
        _lines("Errors by kind", "reqps", ("{{kind}}", f"sum by (kind) ({_rate('workbench_errors_total')})")),
        _lines("Requests by key", "reqps", ("{{key}}", f"sum by (key) ({_rate('workbench_key_requests_total')})")),
        _lines(
            "Connections",
            "none",
            ("open {{instance}}", f"sum by (instance) (workbench_connections{_SELECT})"),
            (
                "{{how}} {{instance}}",
                f"sum by (instance, how) (increase(workbench_connections_closed_total{_SELECT}{_WINDOW}))",
            ),
        ),
        _lines("Latency of successful requests", "s", *_percentiles("workbench_request_duration_seconds", 50, 95, 99)),
        _lines("Time in the queue", "s", *_percentiles("workbench_queue_duration_seconds", 50, 95, 99)),
        _lines("Time of one call of the model", "s", *_percentiles("workbench_model_duration_seconds", 50, 95, 99)),
        _lines("Rows that wait", "none", ("{{instance}}", f"workbench_queue_depth{_SELECT}")),
        _lines(
            "Rows in a batch",
            "none",
            (
                "mean",
                f"sum({_rate('workbench_batch_rows_sum')}) / sum({_rate('workbench_batch_rows_count')})",
            ),
            *_percentiles("workbench_batch_rows", 50, 95),
        ),
        _lines(
            "Rows by length bin",
            "rowsps",
            ("{{length}}", f"sum by (length) ({_rate('workbench_bin_rows_total')})"),
            stacked=True,
        ),
        _lines(
            "Rows in a batch, by length bin",
            "none",
            (
                "{{length}}",
                f"sum by (length) ({_rate('workbench_bin_rows_total')}) / "
                f"sum by (length) ({_rate('workbench_bin_batches_total')})",
            ),
        ),
        _lines(
            "Padding among computed positions",
            "percentunit",
            (
                "share",
                f"sum({_rate('workbench_padded_positions_total')}) / sum({_rate('workbench_positions_total')})",
            ),
        ),
        _lines(
            "Share of time a worker computes",
            "percentunit",
            (
                "{{instance}} {{worker}}",
                f"sum by (instance, worker) ({_rate('workbench_worker_busy_seconds_total')})",
            ),
        ),
        _lines(
            "Memory of the host",
            "bytes",
            ("front ends {{instance}}", f"sum by (instance) (process_resident_memory_bytes{_SELECT})"),
            ("worker {{instance}} {{worker}}", f"workbench_worker_resident_memory_bytes{_SELECT}"),
        ),
        _lines(
            "Memory of the device",
            "bytes",
            ("worker {{instance}} {{worker}}", f"workbench_worker_device_memory_bytes{_SELECT}"),
        ),
        *_device_panels(),
        _lines(
            "Workers",
            "none",
            ("alive {{instance}}", f"workbench_workers_alive{_SELECT}"),
            (
                "started again {{instance}}",
                f"sum by (instance) (increase(workbench_worker_restarts_total{_SELECT}{_WINDOW}))",
            ),
            (
                "starts that failed {{instance}}",
                f"sum by (instance) (increase(workbench_worker_failed_starts_total{_SELECT}{_WINDOW}))",
            ),
        ),
        _lines(
            "Time without a worker",
            "s",
            ("{{instance}}", f"workbench_no_worker_seconds{_SELECT}"),
        ),
        _lines(
            "Processor time and open files of the front end",
            "none",
            ("processors {{instance}}", _rate("process_cpu_seconds_total")),
            ("files / 1000 {{instance}}", f"max by (instance) (process_open_fds{_SELECT}) / 1000"),
        ),
    ]
    dashboard = {
        "title": f"Workbench service {facts.slug}",
        "uid": f"workbench-{facts.candidate}",
        "description": f"Written by workbench {facts.workbench} with candidate {facts.candidate}"
        + (". EMULATED: made without a device." if facts.emulated else "."),
        "tags": ["workbench"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "panels": _placed(panels),
    }
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _device_panels() -> list[dict[str, Any]]:
    """Empty where the host computes."""
    legend = "{{device}} {{instance}}"
    failed = f"increase(workbench_device_reading_failures_total{_SELECT}{_WINDOW})"
    return [
        _lines(
            "Memory of the whole card",
            "bytes",
            (f"in use {legend}", f"workbench_device_memory_used_bytes{_SELECT}"),
            (f"of {legend}", f"workbench_device_memory_total_bytes{_SELECT}"),
        ),
        _lines("Power of the card", "watt", (legend, f"workbench_device_power_watts{_SELECT}")),
        _lines(
            "Share of time the card computes", "percentunit", (legend, f"workbench_device_utilization_ratio{_SELECT}")
        ),
        _lines("Temperature of the card", "celsius", (legend, f"workbench_device_temperature_celsius{_SELECT}")),
        _lines(
            "Looks at a card that failed",
            "none",
            (
                legend,
                f"sum by (instance, device) ({failed})",
            ),
        ),
    ]


def _variables() -> list[dict[str, Any]]:
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return [
        source,
        _label_variable("job", "workbench_requests_received_total"),
        _label_variable("instance", 'workbench_requests_received_total{job=~"$job"}'),
    ]


def _label_variable(label: str, series: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({series}, {label})", "refId": label},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _rate(series: str) -> str:
    return f"rate({series}{_SELECT}{_WINDOW})"


def _percentiles(histogram: str, *percents: int) -> tuple[tuple[str, str], ...]:
    """Interpolated inside the buckets, which are at most half as wide as their lower bound where services live."""
    return tuple(
        (f"P{percent}", f"histogram_quantile({percent / 100}, sum by (le) ({_rate(f'{histogram}_bucket')}))")
        for percent in percents
    )


def _lines(title: str, unit: str, *queries: tuple[str, str], stacked: bool = False) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal" if stacked else "none"}, "fillOpacity": 30 if stacked else 5}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for number, (legend, expression) in enumerate(queries)
        ],
    }


def _table(title: str, query: str, without: tuple[str, ...]) -> dict[str, Any]:
    return {
        "type": "table",
        "title": title,
        "datasource": _SOURCE,
        "targets": [{"refId": "A", "datasource": _SOURCE, "expr": query, "format": "table", "instant": True}],
        "transformations": [{"id": "organize", "options": {"excludeByName": dict.fromkeys(without, True)}}],
    }


def _placed(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first panel over the whole width, the others three in a row."""
    placed = []
    for number, panel in enumerate(panels):
        if number == 0:
            where = {"x": 0, "y": 0, "w": 3 * _WIDTH, "h": 5}
        else:
            row, column = divmod(number - 1, 3)
            where = {"x": column * _WIDTH, "y": 5 + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
        placed.append({"id": number + 1, "gridPos": where, **panel})
    return placed
