"""Kernel of a compiled file → the nodes of the ONNX graph that it came of: names through fusions.

For whoever holds something of a device, named by kernels, against the model. ATC's JSON of an OM tells it, which
`dump.om_operators` reads; here ATC is asked for one OM.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from workbench.targets.ascend.atc.atc import compile_environment, compile_timeout_s, find_atc
from workbench.targets.ascend.atc.failure import failure_of, no_file
from workbench.targets.ascend.atc.om_to_json import run_to_json
from workbench.targets.ascend.dump.om_operators import OmOperator, read_operators
from workbench.targets.ascend.paths import place_model, work_directory
from workbench.values.errors import ConfigError

_NO_KERNELS = frozenset({"NetOutput", "RefData"})


def fused_kernels(om: Path) -> Mapping[str, OmOperator]:
    """Kernel → what it came of; one that ATC put in, as a Cast, has no nodes. Runs ATC, which takes seconds.

    Raises:
        CompileError, ToolchainError: ATC cannot read the file, or cannot be started.
    """
    with work_directory(om.parent, "names") as root:
        directory = root / "json"
        directory.mkdir()
        run, file = run_to_json(
            find_atc(os.environ),
            place_model(om, root),
            directory,
            log=root / "json.log",
            environment=compile_environment(os.environ, directory, workers=1),
            timeout_s=compile_timeout_s(os.environ),
        )
        if run.status != 0:
            raise failure_of(run, f"{om.name} into JSON")
        try:
            operators = read_operators(file)
        except (OSError, ConfigError) as error:
            raise no_file(run, f"{om.name} into JSON", f"its JSON cannot be read: {error}") from error
    return {
        name: op for name, op in operators.items() if not (op.is_constant or op.is_input or op.op_type in _NO_KERNELS)
    }
