"""What a service on an Ascend card needs in production, from the vendor's public documents; not tried on a device.

[doc] `huawei.com/Ascend910` is the resource of the vendor's Ascend Device Plugin (MindCluster) for whole cards of the
910 family, equal in requests and limits. [doc] Huawei Cloud CCE names it `huawei.com/ascend-1980`. [inferred] Where
Ascend Docker Runtime is installed it mounts devices and driver itself, and the hostPath volumes may go.
"""

from __future__ import annotations

from workbench.targets.description import DeploymentFacts, Devices
from workbench.values.artifact import Toolchain

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
