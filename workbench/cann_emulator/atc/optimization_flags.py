"""The flags of the graph's optimizer, whose values are looked at when a compile begins (ge v8.5.0
base/common/option_register.cc, graph_metadef/graph/option/optimization_option.cc)."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.cann_emulator.atc.failure import AtcFailure, Record

_VALUES: Mapping[str, tuple[str, ...]] = {
    "oo_level": ("O1", "O3"),
    "oo_constant_folding": ("", "true", "false"),
    "oo_dead_code_elimination": ("", "true", "false"),
    "topo_sorting_mode": ("", "0", "1", "2", "3"),
    "export_compile_stat": ("0", "1", "2"),
}
"""Where an empty value stands for the default, it is among them."""

EMPTY_IS_A_VALUE = frozenset(flag for flag, values in _VALUES.items() if "" not in values)
"""Flags that an empty value is wrong for."""


def check_optimization_flags(options: Mapping[str, str]) -> None:
    """
    Raises:
        AtcFailure: E10001; of --topo_sorting_mode behind an inner error.
    """
    for flag, values in _VALUES.items():
        value = options.get(flag)
        if value is None or value in values:
            continue
        reason = f"it is one of {', '.join(filter(None, values))}"
        refused = Record(code="E10001", arguments={"parameter": f"--{flag}", "value": value, "reason": reason})
        inner = Record(code="E19999", arguments={"message": f"The value {value} of {flag} is out of range."})
        raise AtcFailure(*((inner, refused) if flag == "topo_sorting_mode" else (refused,)))
