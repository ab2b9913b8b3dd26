"""A Grafana dashboard over the names of `workbench.serve.metrics`; its panels stand in `templates/dashboard.toml`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.shipping.deployment.facts import Facts

_PANELS = Path(__file__).with_name("templates") / "dashboard.toml"
_SELECT, _WINDOW = '{job=~"$job", instance=~"$instance"}', "[$__rate_interval]"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT = 8, 8


def grafana_dashboard(facts: Facts) -> str:
    """JSON to import into Grafana 10 or newer; it asks for a Prometheus data source and shows every service in it."""
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
        "templating": {
            "list": [
                {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _label_variable("job", "workbench_requests_received_total"),
                _label_variable("instance", 'workbench_requests_received_total{job=~"$job"}'),
            ]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(_panels(), 1)],
    }
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


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


def _panels() -> Iterator[dict[str, Any]]:
    """The first over the whole width, the others three in a row."""
    yield {
        "gridPos": {"x": 0, "y": 0, "w": 3 * _WIDTH, "h": 5},
        "type": "table",
        "title": "What is served (emulated = true: figures of no device)",
        "datasource": _SOURCE,
        "targets": [_target("A", f"workbench_bundle_info{_SELECT}") | {"format": "table", "instant": True}],
        "transformations": [
            {
                "id": "organize",
                "options": {"excludeByName": dict.fromkeys(("Time", "Value", "__name__", "job"), True)},
            }
        ],
    }
    for number, panel in enumerate(tomllib.loads(_PANELS.read_text(encoding="utf-8"))["panels"]):
        row, column = divmod(number, 3)
        stacked = panel.get("stacked", False)
        custom = {"stacking": {"mode": "normal" if stacked else "none"}, "fillOpacity": 30 if stacked else 5}
        yield {
            "gridPos": {"x": column * _WIDTH, "y": 5 + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
            "type": "timeseries",
            "title": panel["title"],
            "datasource": _SOURCE,
            "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0, "custom": custom}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": [
                _target(chr(ord("A") + place), query) | {"legendFormat": legend}
                for place, (legend, query) in enumerate(_queries(panel))
            ],
        }


def _target(ref: str, query: str) -> dict[str, Any]:
    return {"refId": ref, "datasource": _SOURCE, "expr": query.replace("$at", _SELECT).replace("$over", _WINDOW)}


def _queries(panel: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(legend, PromQL) of each line."""
    yield from panel.get("lines", ())
    percentiles = panel.get("percentiles", {"at": ()})
    for percent in percentiles["at"]:
        buckets = f"sum by (le) (rate({percentiles['of']}_bucket$at$over))"
        yield f"P{percent}", f"histogram_quantile({percent / 100}, {buckets})"
