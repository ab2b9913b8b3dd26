"""docs/compose.yaml: every image of one version, every part watched, no password."""

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FILE = Path(__file__).parent.parent / "docs" / "compose.yaml"
PAGE = FILE.with_name("team-services.md")
SECRET = re.compile("PASSWORD|SECRET|ACCESS_KEY|DATABASE$")


def services() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(FILE)["services"]
    return found


def test_every_image_has_a_version_and_every_part_is_watched_and_waited_for() -> None:
    for name, service in services().items():
        assert re.search(r":v?\d+\.\d+", service["image"]), name
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL"), name
        assert service["restart"] == "unless-stopped"
    waits = services()["mlflow"]["depends_on"]
    assert waits == {name: {"condition": "service_healthy"} for name in ("postgres", "objects")}


def test_no_password_has_a_default_and_only_mlflow_is_reached_from_outside_and_by_this_machine_alone() -> None:
    for name, service in services().items():
        for variable, value in service["environment"].items():
            if SECRET.search(variable):
                assert re.search(r"\$\{[A-Z0-9_]+:\?", value), f"{name}: {variable}"
    assert [name for name, service in services().items() if "ports" in service] == ["mlflow"]
    assert services()["mlflow"]["ports"] == ["${MLFLOW_LISTEN:-127.0.0.1:5000}:5000"]


def test_the_page_names_every_variable_that_must_be_set() -> None:
    asked = set(re.findall(r"\$\{([A-Z0-9_]+):\?", FILE.read_text()))

    assert len(asked) == 7
    assert asked <= set(re.findall(r"^([A-Z0-9_]+)=", PAGE.read_text(), flags=re.MULTILINE))
