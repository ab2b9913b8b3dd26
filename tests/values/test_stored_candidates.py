"""Candidates keep their ids: those that were stored once, and those whose settings gain a field."""

import json
from pathlib import Path
from typing import Any

from tests.values.installing import installing
from workbench.values.candidate import candidate_from_json
from workbench.values.documents.canonical import decode
from workbench.values.installed_targets import installed_target

FILE = Path(__file__).with_name("stored_candidates.json")
STORED: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
"""Written down when the settings of all targets stood in one module."""

SETTINGS = """
from dataclasses import dataclass, field
from workbench.targets.description import TargetDescription
from workbench.values.compile_settings import CompileSettings
from workbench.values.documents.canonical import added_later

@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeSettings(CompileSettings):
    level: int = 1
    {more}

TARGET = TargetDescription(name="acme", title="Acme", settings=AcmeSettings, make=lambda: None)
"""


def test_a_stored_candidate_keeps_its_id_and_its_form() -> None:
    for stored in STORED:
        candidate = candidate_from_json(stored["candidate"])

        assert candidate.id == stored["id"]
        assert candidate.to_json() == stored["candidate"]
        kind = installed_target(candidate.target).settings
        assert candidate.compile == decode(kind, stored["candidate"]["compile"])


def test_a_target_whose_settings_gain_a_field_keeps_the_ids_of_its_candidates(tmp_path: Path) -> None:
    stored = {"version": 1, "target": "acme", "compile": {"level": 3}}
    with installing(tmp_path) as install:
        install("acme-int8", "acme", "acme_first", SETTINGS.format(more=""))
        before = candidate_from_json(stored)
        install("acme-int8", "acme", "acme_later", SETTINGS.format(more="tiles: int = added_later(0)"))
        after, other = candidate_from_json(before.to_json()), candidate_from_json({**stored, "compile": {"tiles": 2}})

        assert after.parameters()["compile.tiles"] == 0
        assert after.id == before.id
        assert after.to_json() == before.to_json()
        assert other.to_json()["compile"] == {"level": 1, "tiles": 2}
        assert other.id != before.id
