"""What production must give a service of a target: image, account, devices, memory of the host.

A target says it as `DeploymentFacts`; one that says nothing is served by a plain image of Python on the host's
processors. How it is written into files is no affair of targets.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.values.artifact import Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Cards beside the host, and what of the host a service on one of them needs.

    Attributes:
        card, second_card: device file of the first card, and of the next one for a word about it.
        others: device files that every process needs besides its card's.
        mounts: paths of the host, given read-only.
        mounts_unneeded: where the mounts may be left out, as a clause behind "the host's driver".
        group, group_id: owner of the device files on the host, and its assumed number.
        group_argument: build argument that holds the number.
        group_owns: what the group owns, as it is written in comments.
        files_note: why the bundle must belong to the service's user.
        log_variable, log_root: environment variable that names the folder of the vendor's logs, and where these go.
        log_note: what happens to these logs in a pod.
        resource: lines of Kubernetes' `resources` that ask for one card.
    """

    card: str
    second_card: str
    others: tuple[str, ...]
    mounts: tuple[str, ...]
    mounts_unneeded: str
    group: str
    group_id: int
    group_argument: str
    group_owns: str
    files_note: str
    log_variable: str
    log_root: str
    log_note: str
    resource: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFacts:
    """What the files of a deployment take from the target.

    Attributes:
        base_image, base_argument: public image to start from, and the build argument that replaces it.
        base_note: comment lines about it, without '#'.
        python: the interpreter's name in that image.
        before_serving: shell commands that set the vendor's environment before the service takes their place.
        worker_threads: that a worker keeps busy on the host; None for the candidate's own.
        worker_mb, worker_mb_for: memory of the host assumed for each worker beside the process, and what for; None
            where it is measured, or follows the files of the model.
        heading, notes: of a section of the guide; texts of `notes` may name `{service_id}` and `{log_folder}`.
    """

    base_image: str = "python:3.11-slim"
    base_argument: str = "BASE_IMAGE"
    base_note: tuple[str, ...] = ()
    python: str = "python"
    before_serving: tuple[str, ...] = ()
    devices: Devices | None = None
    worker_threads: int | None = None
    worker_mb: int | None = None
    worker_mb_for: str = ""
    heading: str = ""
    notes: tuple[str, ...] = ()


def on_the_host(toolchain: Toolchain) -> DeploymentFacts:
    """Of a target that asks for nothing special, whatever the toolchain."""
    return DeploymentFacts()
