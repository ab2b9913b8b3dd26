"""What a bundle says of its own fidelity."""

from __future__ import annotations

from workbench.bundle.bounds import value_fault
from workbench.bundle.opened import Bundle
from workbench.values.documents.canonical import DecodeError
from workbench.values.documents.json_reader import loads
from workbench.values.errors import BundleError
from workbench.values.fidelity import Fidelity, fidelity_from_json


def bundle_fidelity(bundle: Bundle) -> Fidelity | None:
    """None where nobody measured it before it was exported.

    Raises:
        BundleError: the file is damaged, holds none, or that of another candidate.
    """
    name = bundle.manifest.fidelity
    if name is None:
        return None
    try:
        body = loads(bundle.read(name))
        if fault := value_fault(body, name):
            raise ValueError(fault)
        if not isinstance(body, dict):
            raise ValueError("it holds no JSON object")
        found = fidelity_from_json(body)
    except (DecodeError, ValueError) as error:
        raise BundleError(f"{bundle.directory}: {name} cannot be used: {error}.") from error
    if found.candidate_id != bundle.manifest.candidate_id:
        raise BundleError(
            f"{bundle.directory}: {name} is of the candidate {found.candidate_id[:12]!r}, not of its own."
        )
    return found
