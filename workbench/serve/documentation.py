"""/openapi.json and /docs."""

from __future__ import annotations

from typing import Any

from workbench.serve.service import Service


def openapi(service: Service) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": service.bundle.manifest.name, "version": "1"}, "paths": {}}


def page(document: dict[str, Any]) -> str:
    return "<html></html>"
