"""Which settings of ATC compute operators in more than half precision: the candidates that `workbench repair` tries.

From the smallest change to the largest: nodes that keep the model's type, types on the black list of mixed precision,
and another precision mode for the whole model, which takes the place of both.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace

from workbench.targets.ascend.settings import MIXED_MODES, AscendCompile
from workbench.targets.inside import Change, DeviceOperator
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import ConfigError

_MIXED = "allow_mix_precision"
_MODES = ("allow_fp32_to_fp16", _MIXED, "must_keep_origin_dtype")
"""Modes that keep more types than force_fp16: all but matrix products, all but the white list, and everything."""


def changes(candidate: Candidate, operators: Sequence[DeviceOperator]) -> tuple[Change, ...]:
    """Those that settings allow beside the rest of the candidate, as INT8 excludes some modes."""
    settings, mode = candidate.compile, candidate.precision.mode
    assert isinstance(settings, AscendCompile)  # Candidate checks it
    found = []

    def add(setting: str, what: str, compile: AscendCompile, precision: str = mode) -> None:
        with contextlib.suppress(ConfigError):  # what cannot be said beside the others is no way on
            compile.handed_files()
            made = replace(candidate, compile=compile, precision=Precision(mode=precision))
            if made.id != candidate.id:
                wider = setting == "compile.keep_dtype"
                found.append(Change(candidate=made, setting=setting, what=what, wider=wider))

    names = tuple(dict.fromkeys(node for operator in operators for node in operator.nodes))
    if names:
        what = f"in the model's type: {', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
        keep = tuple(dict.fromkeys((*settings.keep_dtype, *names)))
        add("compile.keep_dtype", what, replace(settings, keep_dtype=keep))
    types = [o.op_type for o in operators if o.nodes and re.fullmatch(r"[A-Za-z]\w*", o.op_type)]
    entries = tuple(f"black-list.to-add:{one}" for one in dict.fromkeys(types))
    if entries:
        mixed = mode if mode in MIXED_MODES else _MIXED
        listed = tuple(dict.fromkeys((*settings.modify_mixlist, *entries)))
        what = f"in the model's type: every {', '.join(dict.fromkeys(types))}, in {mixed}"
        add("compile.modify_mixlist", what, replace(settings, modify_mixlist=listed), mixed)
    for other in _MODES:
        plain = replace(settings, keep_dtype=(), modify_mixlist=())
        add("precision.mode", f"the whole model is compiled in {other}", plain, other)
    return tuple(found)
