"""What a profile speaks for trying, as settings of this target.

A suggestion's bound is the share of the run that the finding is about: what would go if all of it went. What is gained
is for an evaluation to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from workbench.targets.ascend.config_files import FUSION_GROUPS
from workbench.targets.ascend.settings import PRECISION_MODES, AscendCompile
from workbench.values.candidate import Candidate
from workbench.values.device_profile import COMPUTING, Cause, DeviceProfile, Suggestion
from workbench.values.dimension import FUSION_PREFIX, Scalar

Changes = Mapping[str, Scalar]
Offered = Mapping[str, tuple[Scalar, ...]]
"""Parameter of a space → its choices."""
_LEAST_SHARE = 0.02
_MOST = 8
_LARGEST_BATCH = 64
_STARTS_OF: Mapping[str, tuple[str, ...]] = {
    "layer_norm": ("reducemean", "sub", "pow", "square", "sqrt", "rsqrt", "realdiv", "div", "squareddifference"),
    "gelu": ("erf", "tanh", "pow"),
    "softmax": ("exp", "reducemax", "reducesum", "sub"),
    "elementwise": ("add", "mul", "sub", "relu", "cast", "realdiv", "neg", "maximum", "minimum"),
    "matmul_bias": ("add",),
    "matmul_elementwise": ("relu", "gelu", "add", "mul"),
    "layout": ("transpose", "transposed", "reshape"),
    "matmul_transpose": ("transpose", "transposed"),
    "quant_elementwise": ("ascendquant",),
    "dequant_elementwise": ("ascenddequant",),
    "softmax_small": ("softmaxv2", "softmax"),
}
"""Fusion group → operators, as Ascend names them, that are left over where it does nothing [inferred]."""


def suggestions(profile: DeviceProfile, candidate: Candidate, offered: Offered) -> tuple[Suggestion, ...]:
    """The costliest findings first; findings that ask for the same change are one.

    Args:
        offered: what the space may choose from, so that of equally good values one of them is asked for.
    """
    found: dict[tuple[tuple[str, Scalar], ...], Suggestion] = {}
    device = _part(_whole_us(profile) - profile.causes.get("host launch", 0.0), _whole_us(profile))
    for plain in _all(profile, candidate, offered):
        about_the_host = _WORDS["host launch"] in plain.finding
        suggestion = plain if about_the_host else replace(plain, of_device=min(1.0, _part(plain.at_most, device)))
        if max(suggestion.at_most, suggestion.of_device) < _LEAST_SHARE:
            continue
        key = tuple(sorted(suggestion.changes.items(), key=str)) or (("", suggestion.finding),)
        known = found.get(key)
        found[key] = suggestion if known is None else _joined(known, suggestion)
    return tuple(sorted(found.values(), key=lambda suggestion: -max(suggestion.at_most, suggestion.of_device))[:_MOST])


def _joined(a: Suggestion, b: Suggestion) -> Suggestion:
    return Suggestion(
        finding=f"{a.finding}; {b.finding}",
        changes=a.changes,
        at_most=min(1.0, a.at_most + b.at_most),
        of_device=min(1.0, a.of_device + b.of_device),
    )


def _all(profile: DeviceProfile, candidate: Candidate, offered: Offered) -> Iterator[Suggestion]:
    compiled = candidate.compile
    assert isinstance(compiled, AscendCompile)
    larger = _larger_batch(candidate, compiled, offered)
    yield from _of_idle(profile, compiled, larger)
    yield from _of_small_operators(profile, compiled, larger)
    yield from _of_conversions(profile, candidate, compiled)
    yield from _of_quantization(profile, candidate, compiled)
    yield from _of_products(profile, candidate)
    yield from _of_the_peak(profile, larger)
    yield from _of_vectors(profile, compiled)


def _of_idle(profile: DeviceProfile, compiled: AscendCompile, larger: Changes) -> Iterator[Suggestion]:
    shares = {cause: _share(profile, cause) for cause in _WORDS}
    both: tuple[Cause, ...] = ("host launch", "host copy")
    for cause in both:
        if larger and (share := shares[cause]):
            yield Suggestion(finding=f"{_percent(share)} of the time {_WORDS[cause]}", changes=larger, at_most=share)
    if shares["synchronization"]:
        share = shares["synchronization"]
        alone: dict[str, Scalar] = {} if compiled.enable_single_stream else {"compile.enable_single_stream": True}
        finding = f"{_percent(share)} of the time {_WORDS['synchronization']}"
        yield Suggestion(finding=finding, changes=alone, at_most=share)
    if shares["host operator"]:
        share, names = shares["host operator"], _names(profile, "cpu")
        yield Suggestion(
            finding=f"{_percent(share)} of the time {_WORDS['host operator']}: {names}. No setting moves it to "
            "the cores; export the model without it, or with element types that the cores know",
            changes={},
            at_most=share,
        )
    switched = sum(task.duration_us for task in profile.tasks if "LABEL_SWITCH" in task.op_type)
    if switched and compiled.shapes == "gears":
        share = _part(switched, _shown_us(profile))
        yield Suggestion(finding="each call chooses a gear", changes={"compile.shapes": "static"}, at_most=share)


def _of_small_operators(profile: DeviceProfile, compiled: AscendCompile, larger: Changes) -> Iterator[Suggestion]:
    share = _part(sum(row.total_us for row in profile.small), _whole_us(profile))
    types = {kind.lower() for row in profile.small for kind in row.types}
    said = f"{_percent(share)} of the time goes into rows of operators of less than 5 µs"
    if compiled.oo_level == "O1":
        yield Suggestion(finding=f"{said}; O1 fuses nothing", changes={"compile.oo_level": "O3"}, at_most=share)
        return
    for group in _groups_that_are_off(compiled):
        left = sorted(types.intersection(_STARTS_OF.get(group, ())))
        if left:
            changes: dict[str, Scalar] = {f"{FUSION_PREFIX}{group}": "on"}
            finding = f"{said}, among them {', '.join(left)}, and the fusions of {group} are off"
            own = sum(o.total_us for o in profile.operators if o.op_type.lower() in left)
            yield Suggestion(finding=finding, changes=changes, at_most=min(share, _part(own, _whole_us(profile))))
    if larger:
        yield Suggestion(finding=said, changes=larger, at_most=share)


def _of_conversions(profile: DeviceProfile, candidate: Candidate, compiled: AscendCompile) -> Iterator[Suggestion]:
    share = _of_whole(profile, profile.conversion_share)
    said = f"{_percent(share)} of the time only changes types and layouts"
    usual = PRECISION_MODES[0]
    if candidate.precision.mode != usual:
        yield Suggestion(
            finding=f"{said} in {candidate.precision.mode}", changes={"precision.mode": usual}, at_most=share
        )
    if compiled.keep_dtype:
        yield Suggestion(
            finding=f"{said}; keep_dtype asks for some", changes={"compile.keep_dtype": "off"}, at_most=share
        )
    for group in ("layout", "matmul_transpose"):
        if group in compiled.disabled_fusions:
            yield Suggestion(finding=said, changes={f"{FUSION_PREFIX}{group}": "on"}, at_most=share)


def _of_quantization(profile: DeviceProfile, candidate: Candidate, compiled: AscendCompile) -> Iterator[Suggestion]:
    q, share = candidate.quantization, _of_whole(profile, profile.quantization_share)
    said = f"{_percent(share)} of the time only quantizes and dequantizes"
    for group in ("quant_elementwise", "dequant_elementwise"):
        if group in compiled.disabled_fusions:
            yield Suggestion(finding=said, changes={f"{FUSION_PREFIX}{group}": "on"}, at_most=share)
    if q.scheme == "static":
        kept = max(1, 2 * (q.keep_float or 0))
        changes: dict[str, Scalar] = {"quantization.keep_float": kept, "quantization.keep_float_unit": "group"}
        yield Suggestion(finding=f"{said}; layers in float need neither", changes=changes, at_most=share)


def _of_products(profile: DeviceProfile, candidate: Candidate) -> Iterator[Suggestion]:
    """INT8 multiplies twice as fast: half of what is left in float is the bound."""
    q, share = candidate.quantization, _of_whole(profile, profile.product_share * (1 - (profile.int8_share or 0.0)))
    said = f"{_percent(share)} of the time are matrix products in float"
    if q.scheme == "none":
        yield Suggestion(finding=said, changes={"quantization.scheme": "static"}, at_most=share / 2)
    elif q.scheme == "static" and q.keep_float:
        yield Suggestion(
            finding=f"{said}, {q.keep_float} units by choice", changes={"quantization.keep_float": 0}, at_most=share / 2
        )
    elif q.scheme == "static" and not q.attention_matmul:
        changes: dict[str, Scalar] = {
            "quantization.attention_matmul": True,
            "quantization.activation_symmetric": True,
        }
        yield Suggestion(finding=f"{said}; those of attention are left out", changes=changes, at_most=share / 2)


def _of_the_peak(profile: DeviceProfile, larger: Changes) -> Iterator[Suggestion]:
    for use in profile.cube[:1]:
        if use.of_peak is not None and use.of_peak < 0.5 and larger:
            own = _of_whole(profile, _part(use.total_us, profile.operators_us))
            yield Suggestion(
                finding=f"products in {use.dtype} reach {use.of_peak:.1%} of the chip's {use.peak_tops:.0f} TOPS; "
                "larger ones fill more of it",
                changes=larger,
                at_most=own * (1 - use.of_peak),
            )


def _of_vectors(profile: DeviceProfile, compiled: AscendCompile) -> Iterator[Suggestion]:
    if compiled.op_select_implmode or compiled.op_precision_mode:
        return
    for kind in ("Gelu", "SoftmaxV2"):
        own = sum(operator.share for operator in profile.operators if operator.op_type == kind)
        share = _of_whole(profile, own)
        changes: dict[str, Scalar] = {
            "compile.op_select_implmode": "high_performance",
            "compile.optypelist_for_implmode": kind,
        }
        yield Suggestion(finding=f"{_percent(share)} of the time is {kind}", changes=changes, at_most=share)


def _larger_batch(candidate: Candidate, compiled: AscendCompile, offered: Offered) -> Changes:
    """The next one that the space offers, else that is compiled, else twice the own one, compiled too."""
    own = candidate.serving.batch
    choices = [choice for choice in offered.get("serving.batch", ()) if isinstance(choice, int) and choice > own]
    known = [batch for batch in choices if batch in compiled.batches or "compile.batches" not in offered]
    known = known or [batch for batch in compiled.batches if batch > own]
    if known:
        return {"serving.batch": min(known)}
    if 2 * own > _LARGEST_BATCH:
        return {}
    batches = " ".join(map(str, sorted({*compiled.batches, 2 * own})))
    return {"serving.batch": 2 * own, **({"compile.batches": batches} if "compile.batches" in offered else {})}


def _groups_that_are_off(compiled: AscendCompile) -> Iterable[str]:
    usually_off = [name for name, group in FUSION_GROUPS.items() if not group.on]
    return (*compiled.disabled_fusions, *(name for name in usually_off if name not in compiled.enabled_fusions))


_WORDS: Mapping[Cause, str] = {
    "host launch": "nothing was queued: the host was at something else",
    "host copy": "the cores wait for copies between host and device",
    "host operator": "the cores wait for operators on the AI CPU",
    "synchronization": "a stream waits for another",
}


def _share(profile: DeviceProfile, cause: Cause) -> float:
    return _part(profile.causes.get(cause, 0.0), _whole_us(profile))


def _whole_us(profile: DeviceProfile) -> float:
    """Of the run; of the operators alone where nothing is known of starts."""
    return profile.computing_us + profile.idle_us or profile.operators_us


def _of_whole(profile: DeviceProfile, share_of_operators: float) -> float:
    return min(1.0, share_of_operators * _part(profile.operators_us, _whole_us(profile)))


def _shown_us(profile: DeviceProfile) -> float:
    return max((task.start_us + task.duration_us for task in profile.tasks), default=0.0)


def _names(profile: DeviceProfile, kind: str) -> str:
    assert kind not in COMPUTING
    found = dict.fromkeys(f"{task.name} ({task.op_type})" for task in profile.tasks if task.kind == kind)
    return ", ".join([*list(found)[:3], *(["…"] if len(found) > 3 else [])])


def _part(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
