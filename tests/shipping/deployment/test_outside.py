"""Ingress, autoscaler and alert rules: by the parts of their schemas that they use, and by the series that exist."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest

from tests.shipping.deployment.manifests import TARGETS, documents, manifest, series_of_the_service
from workbench.shipping.deployment import deployment_files


def exactly(**properties: Any) -> dict[str, Any]:
    """An object of these keys, all of them and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
META = {
    "type": "object",
    "required": ["name", "labels"],
    "properties": {"labels": {"additionalProperties": TEXT}, "annotations": {"additionalProperties": TEXT}},
}
BACKEND = exactly(service=exactly(name=TEXT, port=exactly(name=TEXT)))
PATH = exactly(
    path={"pattern": "^/"}, pathType={"enum": ["Exact", "Prefix", "ImplementationSpecific"]}, backend=BACKEND
)
RULE = exactly(host=TEXT, http=exactly(paths={"type": "array", "minItems": 1, "items": PATH}))
TLS = exactly(hosts={"type": "array", "items": TEXT}, secretName=TEXT)
INGRESS = exactly(
    apiVersion={"const": "networking.k8s.io/v1"},
    kind={"const": "Ingress"},
    metadata=META,
    spec=exactly(ingressClassName=TEXT, tls={"type": "array", "items": TLS}, rules={"type": "array", "items": RULE}),
)
POLICIES = {
    "type": "array",
    "items": exactly(type={"enum": ["Pods", "Percent"]}, value=COUNT, periodSeconds={"minimum": 1, "maximum": 1800}),
}
RULES = exactly(stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600}, policies=POLICIES)
METRIC = {
    "oneOf": [
        exactly(
            type={"const": "Resource"},
            resource=exactly(name=TEXT, target=exactly(type={"const": "Utilization"}, averageUtilization=COUNT)),
        ),
        exactly(
            type={"const": "Pods"},
            pods=exactly(
                metric=exactly(name=TEXT),
                target=exactly(type={"const": "AverageValue"}, averageValue={"type": "string", "pattern": "^[0-9]+$"}),
            ),
        ),
    ]
}
AUTOSCALER = exactly(
    apiVersion={"const": "autoscaling/v2"},
    kind={"const": "HorizontalPodAutoscaler"},
    metadata=META,
    spec=exactly(
        scaleTargetRef=exactly(apiVersion={"const": "apps/v1"}, kind={"const": "Deployment"}, name=TEXT),
        minReplicas=COUNT,
        maxReplicas=COUNT,
        metrics={"type": "array", "minItems": 1, "items": METRIC},
        behavior=exactly(scaleUp=RULES, scaleDown=RULES),
    ),
)
ALERT = exactly(
    alert={"pattern": "^[A-Z][A-Za-z]+$"},
    expr=TEXT,
    **{"for": {"pattern": "^[0-9]+[smh]$"}},
    labels={"type": "object", "additionalProperties": TEXT, "required": ["severity"]},
    annotations=exactly(summary=TEXT),
)
ALERTS = exactly(groups={"type": "array", "items": exactly(name=TEXT, rules={"type": "array", "items": ALERT})})
"""From the reference of networking.k8s.io/v1, autoscaling/v2 and of Prometheus' recording and alerting rules."""


@pytest.fixture(params=TARGETS)
def files(request: pytest.FixtureRequest) -> dict[str, str]:
    return deployment_files(manifest(request.param))


@pytest.mark.parametrize(
    ("name", "schema"), [("ingress.yaml", INGRESS), ("autoscaler.yaml", AUTOSCALER), ("alerts.yml", ALERTS)]
)
def test_every_file_is_as_its_schema_says(files: dict[str, str], name: str, schema: dict[str, Any]) -> None:
    (found,) = documents(files[name])

    jsonschema.validate(found, schema)


def test_the_way_in_leads_to_the_service_and_lets_only_clients_requests_through(files: dict[str, str]) -> None:
    (found,) = documents(files["ingress.yaml"])
    _, service = documents(files["kubernetes.yaml"])
    (rule,) = found["spec"]["rules"]

    assert [path["path"] for path in rule["http"]["paths"]] == ["/predict", "/info"]
    for path in rule["http"]["paths"]:
        assert path["backend"]["service"]["name"] == service["metadata"]["name"]
        assert path["backend"]["service"]["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    assert rule["host"] in found["spec"]["tls"][0]["hosts"]
    assert f"--allowed-host={rule['host']}" in files["ingress.yaml"]


def test_the_autoscaler_scales_the_deployment_by_what_its_pods_run_out_of(files: dict[str, str]) -> None:
    (found,) = documents(files["autoscaler.yaml"])
    deployment, _ = documents(files["kubernetes.yaml"])
    (metric,) = found["spec"]["metrics"]

    assert found["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    if "huawei.com" in files["kubernetes.yaml"]:
        assert metric["pods"]["metric"]["name"] in series_of_the_service()
        assert metric["pods"]["target"]["averageValue"] == "8", "one full batch"
    else:
        assert metric["resource"]["name"] == "cpu"
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert "cpu" in container["resources"]["requests"], "a share of nothing cannot be told"


def test_alerts_ask_only_for_series_and_labels_that_the_service_sends(files: dict[str, str]) -> None:
    known = {**series_of_the_service(), "up": {"job"}}
    (group,) = documents(files["alerts.yml"])[0]["groups"]

    for rule in group["rules"]:
        names = re.findall(r"\b(?:workbench_\w+|up)\b", rule["expr"])
        assert names, rule["expr"]
        for name in names:
            assert name in known, rule["expr"]
        labels = {*re.findall(r"\{(\w+)=", rule["expr"])}
        for by in re.findall(r"by \(([^)]*)\)", rule["expr"]):
            labels |= {label.strip() for label in by.split(",")}
        assert labels <= set.union(*(known[name] for name in names)) | {"job", "instance"}, rule["expr"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
    assert documents(files["prometheus.yml"])[0]["rule_files"] == ["alerts.yml"]


def test_only_services_with_cards_are_watched_for_hot_ones() -> None:
    assert "WorkbenchDeviceHot" in deployment_files(manifest("ascend910b3"))["alerts.yml"]
    assert "WorkbenchDevice" not in deployment_files(manifest("onnxruntime"))["alerts.yml"]
