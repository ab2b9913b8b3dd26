"""The files are read back by the parsers of those who will use them; commands inside them are run."""

import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shipping.deployment.manifests import TARGETS, documents, manifest, series_of_the_service
from workbench.serve.access import canonical_host
from workbench.serve.refusals import STATUS
from workbench.serve.settings import ServeSettings
from workbench.shipping.deployment import GRACE_S, deployment_files, serving_shell, slug_of
from workbench.targets import described
from workbench.values.errors import ConfigError
from workbench.values.service import ServiceSettings

SLUG = re.compile(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?")


@pytest.fixture(params=TARGETS)
def files(request: pytest.FixtureRequest) -> dict[str, str]:
    return deployment_files(manifest(request.param))


@pytest.fixture
def ascend() -> dict[str, str]:
    return deployment_files(manifest("ascend910b3"))


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of each logical line."""
    joined = re.sub(r"\\\n", "", "\n".join(line for line in dockerfile.splitlines() if not line.startswith("#")))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines() if line]


def unit_values(text: str, key: str) -> list[str]:
    return [line.split("=", 1)[1] for line in text.splitlines() if line.startswith(f"{key}=")]


@pytest.mark.parametrize("target", TARGETS)
def test_an_emulated_bundle_says_so_in_every_file_that_is_read(target: str) -> None:
    for name, text in deployment_files(manifest(target, emulated=True)).items():
        assert "EMULATED" in text or name == "requirements-serve.txt", name
    assert not any("EMULATED" in text for text in deployment_files(manifest(target)).values())


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=80))
def test_any_name_becomes_a_label_that_no_format_misreads(name: str) -> None:
    slug = slug_of(name, manifest().candidate_id)

    assert SLUG.fullmatch(slug)
    assert documents(f"name: {slug}") == [{"name": slug}]
    assert len(slug) <= 63 - len("-12345")


# --- container


def test_the_image_runs_as_a_user_that_is_not_root_and_stops_on_sigterm(files: dict[str, str]) -> None:
    made = instructions(files["Dockerfile"])
    names = [name for name, _ in made]

    assert {*names} <= {
        *("ARG", "FROM", "ENV", "USER", "COPY", "RUN", "WORKDIR"),
        *("EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"),
    }
    assert [value for name, value in made if name == "USER"][-1].startswith("10001:")
    assert names.index("ENTRYPOINT") > len(names) - 1 - names[::-1].index("USER")
    assert ("STOPSIGNAL", "SIGTERM") in made
    assert ("EXPOSE", "8000") in made
    assert made[0] in (
        ("ARG", "BASE_IMAGE=python:3.11-slim"),
        ("ARG", "CANN_IMAGE=quay.io/ascend/cann:8.5.0-910b-ubuntu22.04-py3.11"),
    )


def test_the_health_check_of_the_image_is_true_of_200_only(files: dict[str, str]) -> None:
    (check,) = [value for name, value in instructions(files["Dockerfile"]) if name == "HEALTHCHECK"]
    command = json.loads(check.split(" CMD ", 1)[1])
    answer = {"status": 200}

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answer["status"] if self.path == "/health/ready" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            port = str(server.server_port)
            command = [sys.executable, "-c", command[2].replace("8000", port)]
            codes = []
            for status in (200, 503):
                answer["status"] = status
                codes.append(subprocess.run(command, timeout=300, stderr=subprocess.DEVNULL, check=False).returncode)
        finally:
            server.shutdown()
            thread.join()

    assert codes == [0, 1]


def test_the_ascend_entry_sets_canns_environment_and_becomes_the_service(tmp_path: Path) -> None:
    """CANN's script is sourced before Python starts, and there is no shell left between signals and the service."""
    (tmp_path / "set_env.sh").write_text("export ASCEND_OPP_PATH=/opp\n", encoding="utf-8")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$$ $ASCEND_OPP_PATH $LD_LIBRARY_PATH"\nprintf "<%s>" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    of_target = described("ascend910b3").deployment(manifest("ascend910b3").artifact.toolchain)
    shell = serving_shell(of_target, "/srv/bundle", host="0.0.0.0", python=str(python))
    shell = shell.replace("/usr/local/Ascend/cann/set_env.sh", str(tmp_path / "set_env.sh"))

    started = subprocess.Popen(
        ["/bin/bash", "-c", shell, "serve", "--workers", "3"],
        env={"LD_LIBRARY_PATH": "/own", "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    )
    said, _ = started.communicate(timeout=300)

    first, second = said.splitlines()
    pid, opp, libraries = first.split(" ")
    assert int(pid) == started.pid
    assert opp == "/opp"
    assert libraries.split(":") == [
        "/usr/local/Ascend/driver/lib64",
        "/usr/local/Ascend/driver/lib64/common",
        "/usr/local/Ascend/driver/lib64/driver",
        "/own",
    ]
    assert second == ("<-m><workbench.serve></srv/bundle><--host><0.0.0.0><--port><8000><--workers><3>")


def test_compose_publishes_on_loopback_and_waits_longer_than_the_drain(files: dict[str, str]) -> None:
    (made,) = documents(files["compose.yaml"])
    (service,) = made["services"].values()

    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert int(service["stop_grace_period"].removesuffix("s")) > GRACE_S
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["environment"]["WORKBENCH_API_KEY"].startswith("${WORKBENCH_API_KEY:?"), "compose asks for it"
    assert (Path("/x/bundle/deploy") / service["build"]["context"]).resolve() == Path("/x")


# --- systemd


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(files: dict[str, str], tmp_path: Path) -> None:
    """The interpreter's path is the only thing replaced: systemd asks whether it can be executed."""
    text = files["loan-intent-small.service"].replace("/opt/workbench/venv/bin/python", sys.executable)
    text = text.replace("User=HwHiAiUser", "User=root").replace("Group=HwHiAiUser", "Group=root")
    unit = tmp_path / "loan-intent-small.service"
    unit.write_text(text, encoding="utf-8")

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=300, check=False
    )

    about_ours = [line for line in (done.stdout + done.stderr).splitlines() if "loan-intent-small" in line]
    assert about_ours == []


def test_the_ascend_unit_is_bash_after_systemds_own_expansion(ascend: dict[str, str]) -> None:
    (start,) = unit_values(ascend["loan-intent-small.service"], "ExecStart")
    bash, option, script, name = shlex.split(start)

    assert (bash, option, name) == ("/bin/bash", "-c", "serve")
    assert "'" not in script
    checked = subprocess.run(["/bin/bash", "-n", "-c", script.replace("$$", "$")], timeout=300, check=False)
    assert checked.returncode == 0
    assert not re.search(r"(?<!\$)\$(?!\$)", script), "systemd would expand it"
    assert "%" not in script


# --- Kubernetes


def test_kubernetes_sends_requests_to_pods_that_are_healthy(files: dict[str, str]) -> None:
    deployment, service = documents(files["kubernetes.yaml"])
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]

    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    for probe, path in (("startupProbe", "ready"), ("readinessProbe", "ready"), ("livenessProbe", "live")):
        assert container[probe]["httpGet"] == {"path": f"/health/{path}", "port": "http"}
    assert ports == {"http": 8000}
    assert template["metadata"]["annotations"]["prometheus.io/port"] == "8000"
    assert template["spec"]["terminationGracePeriodSeconds"] > GRACE_S + int(
        container["lifecycle"]["preStop"]["exec"]["command"][1]
    )
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True


def test_beyond_loopback_kubernetes_starts_no_service_without_keys(files: dict[str, str]) -> None:
    """The file of keys is a Secret that must be there, and what the image's command would refuse is handed to it."""
    template = documents(files["kubernetes.yaml"])[0]["spec"]["template"]["spec"]
    (container,) = template["containers"]
    (keys,) = [volume for volume in template["volumes"] if volume["name"] == "keys"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "keys"]

    assert keys["secret"] == {"secretName": "loan-intent-small"}
    assert container["args"][0] == f"--api-keys={mount['mountPath']}/keys.txt"
    hosts = [option.removeprefix("--allowed-host=") for option in container["args"][1:]]
    assert hosts[0] == "loan-intent-small"
    assert all(canonical_host(host.replace("$(POD_NAMESPACE)", "default")) for host in hosts)
    for listens in ("0.0.0.0", "::"):
        with pytest.raises(ConfigError, match="no key is asked for"):
            ServeSettings(host=listens, service=ServiceSettings())


def test_kubernetes_asks_for_one_card_and_for_what_workers_threads_and_measurements_need(
    ascend: dict[str, str],
) -> None:
    def container(text: str) -> Any:
        return documents(text)[0]["spec"]["template"]["spec"]["containers"][0]["resources"]

    def asked(**changes: Any) -> Any:
        return container(deployment_files(manifest(**changes))["kubernetes.yaml"])["requests"]

    cards = container(ascend["kubernetes.yaml"])
    assert [cards[kind]["huawei.com/Ascend910"] for kind in ("requests", "limits")] == [1, 1]
    assert "huawei.com/ascend-1980" in ascend["kubernetes.yaml"]
    for target in ("onnxruntime", "openvino"):
        assert "huawei.com" not in deployment_files(manifest(target))["kubernetes.yaml"]
    assert asked(workers=3)["cpu"] == "7"
    assert asked(workers=1, peak_memory_bytes=99_000_000)["memory"] == "600Mi"
    assert asked(workers=2, peak_memory_bytes=99_000_000)["memory"] == "950Mi"
    guessed = deployment_files(manifest(workers=1, peak_memory_bytes=None))["kubernetes.yaml"]
    assert "assumed: 250 MB a process and three times the model's files" in guessed
    assert "99 MB" not in guessed


# --- monitoring


def expressions(dashboard: Any) -> list[tuple[str, str]]:
    """(query, legend) of every panel."""
    return [(t["expr"], t.get("legendFormat", "")) for panel in dashboard["panels"] for t in panel["targets"]]


def test_dashboard_and_alerts_ask_only_for_series_and_labels_that_the_service_sends(files: dict[str, str]) -> None:
    known = {**series_of_the_service(), "up": {"job"}}
    (group,) = documents(files["alerts.yml"])[0]["groups"]
    queries = expressions(json.loads(files["grafana-dashboard.json"]))

    for query, legend in (*queries, *((rule["expr"], "") for rule in group["rules"])):
        names = re.findall(r"\b(?:(?:workbench|process)_\w+|up)\b", query)
        assert names, query
        assert {*names} <= known.keys(), query
        sent = set.union(*(known[name] for name in names)) | {"job", "instance"}  # the last two are Prometheus' own
        grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", query) for label in labels.split(",")}
        assert grouped | {*re.findall(r"\{(\w+)=", query)} <= sent, query
        assert {*re.findall(r'kind="(\w+)"', query)} <= STATUS.keys(), query
        assert {*re.findall(r"{{(\w+)}}", legend)} <= (grouped or sent), f"{legend}: {query}"
        assert query.count("(") == query.count(")")
        if "_bucket" in query:
            assert "by (le)" in query
            assert query.startswith("histogram_quantile(")
        for name in names:
            if name.endswith(("_total", "_bucket", "_sum", "_count")):
                assert re.search(rf"(rate|increase)\({name}[{{[]", query), f"a counter's level says nothing: {query}"
    assert documents(files["prometheus.yml"])[0]["rule_files"] == ["alerts.yml"]


def test_every_series_of_the_service_is_on_the_dashboard(files: dict[str, str]) -> None:
    shown = " ".join(query for query, _ in expressions(json.loads(files["grafana-dashboard.json"])))
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in series_of_the_service() if "workbench_" in name}

    missing = {family for family in families if family not in shown}
    assert missing == {"workbench_requests_received_total"}, "requests by status are shown instead"


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
