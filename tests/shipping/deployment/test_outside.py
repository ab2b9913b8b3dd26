"""Ingress, autoscaler and alert rules: what they lead to, and by which series."""

from __future__ import annotations

import re

import pytest

from tests.shipping.deployment.manifests import TARGETS, documents, manifest, series_of_the_service
from workbench.shipping.deployment import deployment_files


@pytest.fixture(params=TARGETS)
def files(request: pytest.FixtureRequest) -> dict[str, str]:
    return deployment_files(manifest(request.param))


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
