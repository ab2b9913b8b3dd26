"""What the Ascend 910B3 target says of itself; what a service on a card needs is from the vendor's public documents and
was not tried on a device.

[doc] `huawei.com/Ascend910` is the resource of the vendor's Ascend Device Plugin (MindCluster) for whole cards of the
910 family, equal in requests and limits. [doc] Huawei Cloud CCE names it `huawei.com/ascend-1980`. [inferred] Where
Ascend Docker Runtime is installed it mounts devices and driver itself, and the hostPath volumes may go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.targets.ascend.dimensions import DIMENSIONS
from workbench.targets.ascend.settings import ASCEND, INTERFACE, AscendCompile
from workbench.targets.description import Binding, DeploymentFacts, Devices, TargetDescription, late
from workbench.values.artifact import Toolchain

if TYPE_CHECKING:
    from workbench.values.artifact import Artifact
    from workbench.values.candidate import Candidate

CANN_IMAGE = "quay.io/ascend/cann:{cann}-910b-ubuntu22.04-py3.11"
"""Public images of CANN [github.com/Ascend/cann-container-image]; 8.5.0 is published there under this very tag."""
DEVICES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
"""What every process on an NPU needs besides its /dev/davinciN [vendor's container guide]."""
DRIVER_MOUNTS = (
    "/usr/local/Ascend/driver",
    "/usr/local/Ascend/add-ons",
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/etc/ascend_install.info",
)
SET_ENV = ("/usr/local/Ascend/cann/set_env.sh", "/usr/local/Ascend/ascend-toolkit/set_env.sh")
"""Where CANN 8.5 and older ones have the script that sets their paths."""
HOST_MB = 1024
"""Assumed of one worker on the host: the model lies on the device, CANN's runtime beside the process."""
_DRIVER = "/usr/local/Ascend/driver/lib64"


def deployment(toolchain: Toolchain) -> DeploymentFacts:
    """One container for each card, on CANN's image of the version that compiled."""
    cann = toolchain.components.get("cann", "")
    return DeploymentFacts(
        base_image=CANN_IMAGE.format(cann=cann),
        base_argument="CANN_IMAGE",
        base_note=(
            f"Any image with CANN {cann} or newer, the kernels of the 910B and Python 3.11 will do; name yours with",
            "--build-arg CANN_IMAGE=… . An OM runs on the CANN it was made with or a newer one.",
        ),
        python="python3",
        # The driver's libraries come from the host; `set_env.sh` does not always know them inside a container
        before_serving=(
            f'export LD_LIBRARY_PATH={_DRIVER}:{_DRIVER}/common:{_DRIVER}/driver:"$LD_LIBRARY_PATH"',
            f'for script in {" ".join(SET_ENV)}; do if [ -r "$script" ]; then . "$script"; break; fi; done',
        ),
        devices=Devices(
            card="/dev/davinci0",
            second_card="/dev/davinci1",
            others=DEVICES,
            mounts=DRIVER_MOUNTS,
            mounts_unneeded="not needed where Ascend Docker Runtime mounts it [inferred]",
            group="HwHiAiUser",
            group_id=1000,
            group_argument="HWHIAI_GID",
            group_owns="/dev/davinci*",
            files_note="OM files are readable by their owner only",
            log_variable="ASCEND_PROCESS_LOG_PATH",
            log_root="/var/log/npu",
            log_note="CANN's logs go with the pod; a hostPath keeps them if its owner is the pod's user",
            resource=("# on Huawei Cloud CCE: huawei.com/ascend-1980", "huawei.com/Ascend910: 1"),
        ),
        worker_threads=1,
        worker_mb=HOST_MB,
        worker_mb_for="CANN",
        heading="Ascend",
        notes=(
            "One container for each card: `/dev/davinci0` in `compose.yaml` is the card; `/dev/davinci_manager`, "
            "`/dev/devmm_svm` and `/dev/hisi_hdc` belong to every one.",
            "Several cards behind one port: give a container all of their `/dev/davinciN` (on Kubernetes "
            "`huawei.com/Ascend910: 8` in requests and limits), processors for its front ends (`plan-capacity` says "
            "how many) and memory for a worker on each; the service then uses every card that it sees.",
            f"Mounted from the host, read-only: {', '.join(f'`{path}`' for path in DRIVER_MOUNTS)}.",
            "CANN's logs: `install -d -o {service_id} -g HwHiAiUser {log_folder}` on the host first; for the systemd "
            "unit `-o HwHiAiUser`.",
            "The service's user needs the group that owns `/dev/davinci*`: build with "
            "`--build-arg HWHIAI_GID=$(getent group HwHiAiUser | cut -d: -f3)`.",
            "Kubernetes: `huawei.com/Ascend910` is the resource of the vendor's device plugin for whole cards; Huawei "
            "Cloud CCE calls it `huawei.com/ascend-1980`.",
            "From the vendor's documents, not tried on a device: the tag of CANN's image, the group's number 1000, "
            "the folders of CANN and the driver.",
        ),
    )


# --- what the target says of itself -----------------------------------------------------------------------------------


def _loading(artifact: Artifact, candidate: Candidate) -> tuple[str, ...]:
    """Which OM holds which shape, and what whoever calls it must do."""
    return (
        *(
            f"`model/{file.file}`: batch {file.batch}"
            + (f", padded length {file.sequence_bin}" if file.sequence_bin is not None else "")
            for file in artifact.files
            if file.batch is not None
        ),
        "take the smallest that holds the request, pad rows and length with zeros (0 in the mask), cut the output",
        f"compiled for {artifact.toolchain.device}; an OM runs on the CANN it was made with or a newer one",
        "created readable by its owner only (0600): chmod for another service user",
    )


_ROOM = "workbench.targets.ascend"
TARGET = TargetDescription(
    name=ASCEND,
    title="Ascend 910B3",
    settings=AscendCompile,
    dimensions=DIMENSIONS,
    named=False,
    make=late(f"{_ROOM}.target:AscendTarget"),
    on_host=False,
    findings=late(f"{_ROOM}.findings:ascend_findings"),
    space_start=late(f"{_ROOM}.operators:space_start"),
    cards=late(f"{_ROOM}.toolchain:cards"),
    chosen_by=("ascend", "soc"),
    choose=late(f"{_ROOM}.toolchain:choose_chip"),
    read_device=late(f"{_ROOM}.npu_smi:reader_of"),
    cluster_resource="NPU",  # Ray's own name for them
    devices_hint="ASCEND_RT_VISIBLE_DEVICES and npu-smi",
    deployment=deployment,
    binding=Binding(
        runtimes=("cann",),
        not_older=("cann",),
        generations=("driver",),
        compiling_only=("amct_onnx", "atc", "operator bank"),
        to_device=True,
    ),
    required_files=(INTERFACE,),
    loading=_loading,
    calibrator=late(f"{_ROOM}.amct.amct:calibrator"),
    profiler=late(f"{_ROOM}.profiling:AscendProfiler"),
    compiled_as="om",
    inside=late(f"{_ROOM}.dump.inside:AscendInside"),
    tune=late(f"{_ROOM}.aoe:tuned"),
    inspect=late(f"{_ROOM}.operators:model_issues"),
    engine="deploy",
    recognizes=lambda proto: any(node.op_type in ("AscendQuant", "AscendDequant") for node in proto.graph.node),
    float32_mode="must_keep_origin_dtype",  # every operator in the model's own type (atc.md, precision modes)
    # the weights of MatMul and Gemm always have one scale (AMCT's configuration refuses another; amct.md, facts 4, 5)
    per_channel_types=("Conv", "ConvTranspose"),
)
