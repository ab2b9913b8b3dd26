"""What a candidate may say to ATC for Ascend 910B3: precision modes, fusion groups, and the compile part.

Names are the vendor's where the vendor has one. Sources are the pages of CANN 8.5.0 and the tag v8.5.0 of its open
repositories (ge, ops-nn); `[inferred]` marks what no source states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workbench.targets.ascend.config_files import FUSION_GROUPS, PRECISION_KINDS, fusion_switch, mixlist, text_lines
from workbench.targets.ascend.flags import PASSED, PREFIX, check_options
from workbench.values.compile_settings import CompileSettings
from workbench.values.dimension import MOST_LENGTH
from workbench.values.documents.canonical import added_later
from workbench.values.errors import ConfigError, nearest

if TYPE_CHECKING:
    from workbench.values.candidate import Candidate

ASCEND, SOC_VERSION = "ascend910b3", "Ascend910B3"
INTERFACE = "interface.json"
"""Beside the compiled files, see `interface`."""
PRECISION_MODES = (
    "force_fp16",
    "allow_fp32_to_fp16",
    "allow_mix_precision",
    "allow_mix_precision_fp16",
    "allow_mix_precision_bf16",
    "allow_fp32_to_bf16",
    "cube_fp16in_fp32out",
    "force_fp32",
    "must_keep_origin_dtype",
)
"""Values of --precision_mode; the first is ATC's own default (ge v8.5.0 api/atc/cmd_flag_info.cc)."""

PRECISION_MODES_V2 = ("fp16", "mixed_float16", "mixed_bfloat16", "origin")
"""Values of --precision_mode_v2 that the other flag does not have. mixed_hif8 and cube_hif8 pass ATC's own check on
every chip, but 8.5 documents them as unsupported (cmd_flag_info.cc:50-52; option page PRECISION_MODE_V2)."""

ALL_PRECISION_MODES = (*PRECISION_MODES, *PRECISION_MODES_V2)

MIXED_MODES = frozenset(mode for mode in ALL_PRECISION_MODES if mode.startswith(("allow_mix_", "mixed_")))
"""Those whose operators follow white, black and grey lists, so that --modify_mixlist means something."""

KEEPING_MODES = frozenset({"must_keep_origin_dtype", "origin"})
"""Every operator keeps the graph's type; --keep_dtype is void (option page of keep_dtype, 8.5.0)."""

INT8_MODES = frozenset({"force_fp16", "fp16", "allow_fp32_to_fp16", *MIXED_MODES})
"""Those a quantized deploy model may be compiled with: with the others neither its speed nor its precision is
obtained (ATC manual, General Restrictions, 9.0 to 9.2; the 8.5 page has the same section)."""

_RESTRICTIONS = "(ATC manual, General Restrictions)"


CALIBRATORS = ("amct", "workbench")
"""Values of `quantization.calibrator`: the vendor's AMCT, or this workbench. Without one AMCT calibrates configurations
where it is installed, the workbench everything else."""

_FILES: tuple[tuple[str, str, Callable[[Iterable[str]], str]], ...] = (
    ("modify_mixlist", "mixlist.json", mixlist),
    ("op_precision_mode", "op_precision.ini", text_lines),
    ("keep_dtype", "keep_dtype.cfg", text_lines),
    ("customize_dtypes", "customize_dtypes.cfg", text_lines),
)
"""Settings whose entries ATC reads from a file: its name, and what writes it."""

Shapes = Literal["static", "gears"]
ImplementationMode = Literal["high_performance", "high_precision"]
OptimizationLevel = Literal["O3", "O1"]
BufferOptimize = Literal["l2_optimize", "off_optimize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AscendCompile(CompileSettings):
    """What ATC is told, and for which shapes it compiles.

    Attributes:
        batches: batch sizes that are compiled, ascending.
        sequence_bins: padded lengths that are compiled, ascending; empty for a model without a sequence axis.
        shapes: 'static' is one file for each batch and bin; 'gears' one file for all of them (--dynamic_dims), which
            a quantized model cannot have.
        disabled_fusions, enabled_fusions: groups of `FUSION_GROUPS` that are not what they are by default, sorted.
        op_select_implmode, optypelist_for_implmode: kernels of these operator types in that mode; the types are
            Ascend's own, such as Gelu.
        op_precision_mode: lines `Type=mode` of the file of that flag; with it the two above are void.
        modify_mixlist: entries such as `black-list.to-add:SoftmaxV2`; mixed modes only.
        keep_dtype: names of nodes, or `OpType::LayerNorm`, that keep the graph's type.
        customize_dtypes: lines of the file of that flag.
        enable_small_channel: only means something for convolutions with at most 4 input channels.
        options: further flags of ATC as the vendor spells them, (flag, value) sorted by flag (`flags`); of a folder
            'PATH@sha256'.
    """

    compiles_shapes: ClassVar[bool] = True

    batches: tuple[int, ...] = (1,)
    sequence_bins: tuple[int, ...] = ()
    shapes: Shapes = "static"
    disabled_fusions: tuple[str, ...] = ()
    enabled_fusions: tuple[str, ...] = ()
    op_select_implmode: ImplementationMode | None = None
    optypelist_for_implmode: tuple[str, ...] = ()
    op_precision_mode: tuple[str, ...] = ()
    modify_mixlist: tuple[str, ...] = ()
    keep_dtype: tuple[str, ...] = ()
    customize_dtypes: tuple[str, ...] = ()
    oo_level: OptimizationLevel = "O3"
    oo_constant_folding: bool = True
    buffer_optimize: BufferOptimize = "l2_optimize"
    tiling_schedule_optimize: bool = False
    enable_single_stream: bool = False
    enable_small_channel: bool = False
    options: tuple[tuple[str, str], ...] = added_later(())

    def __post_init__(self) -> None:
        for name in ("batches", "sequence_bins"):
            sizes = getattr(self, name)
            if list(sizes) != sorted(set(sizes)) or any(not 1 <= size <= MOST_LENGTH for size in sizes):
                raise _wrong(f"compile.{name}", f"{list(sizes)} are not ascending sizes up to {MOST_LENGTH}.")
        if list(self.options) != sorted(dict(self.options).items()):
            raise _wrong("compile.options", "flags must be sorted, each once.")
        check_options(dict(self.options))
        if not self.batches:
            raise _wrong("compile.batches", "no batch size.", "Name at least one, such as 1.")
        for name, on in (("disabled_fusions", True), ("enabled_fusions", False)):
            key, chosen = f"compile.{name}", getattr(self, name)
            allowed = [group for group, passes in FUSION_GROUPS.items() if passes.on is on]
            for group in chosen:
                if group not in allowed:
                    raise _wrong(key, f"{group!r} is no such group.", nearest(group, allowed))
            if list(chosen) != sorted(set(chosen)):
                raise _wrong(key, "names must be sorted and unique.")
            if chosen and self.oo_level == "O1":
                raise _wrong(key, "O1 closes every fusion that can be closed.", "Leave it out, or use O3.")
        if self.op_precision_mode and self.op_select_implmode is not None:
            void = "is void beside op_precision_mode (ATC ignores it)."
            raise _wrong("compile.op_select_implmode", void, "Use one of the two.")
        for line in self.op_precision_mode:  # ATC skips the line, with a word in its log alone
            if (kind := line.partition("=")[2].strip()) not in PRECISION_KINDS:
                near = nearest(kind, PRECISION_KINDS)
                raise _wrong("compile.op_precision_mode", f"{line!r}: ATC would skip it.", near)
        named = [line.partition("InputDtype:")[0] for line in self.customize_dtypes]
        if len(set(named)) < len(named):  # ATC takes the first line of a name and leaves the others
            raise _wrong("compile.customize_dtypes", "a name has two lines, and the first wins.")

    @classmethod
    def of_space(cls, given: Mapping[str, Any], served: tuple[int, ...]) -> AscendCompile:
        passed = {name: str(value) for name, value in given.items() if PREFIX + name in PASSED}
        own = {name: value for name, value in given.items() if name not in passed}
        return cls(**{"batches": served, **own, "options": tuple(sorted(passed.items()))})

    def setting(self, name: str) -> Any:
        return dict(self.options).get(name, getattr(self, name, None))

    def compiled_batches(self) -> tuple[int, ...]:
        return self.batches

    def compiled_lengths(self) -> tuple[int, ...]:
        return self.sequence_bins

    def one_file_a_shape(self) -> bool:
        return self.shapes == "static"

    def for_shapes(self, batches: tuple[int, ...], lengths: tuple[int, ...]) -> AscendCompile:
        gears = self.shapes == "gears" and len(batches) * max(1, len(lengths)) > 1  # one shape needs no choice
        shapes: Shapes = "gears" if gears else "static"
        return replace(self, batches=batches, sequence_bins=lengths, shapes=shapes)

    def handed_files(self) -> Mapping[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        if self.disabled_fusions or self.enabled_fusions:
            text = fusion_switch(self.disabled_fusions, self.enabled_fusions)
            found["fusion_switch_file"] = "fusion_switch.cfg", text
        for flag, file, write in _FILES:
            if entries := getattr(self, flag):
                found[flag] = file, write(entries)
        return found

    def shown(self) -> Mapping[str, Any]:
        """What differs from ATC's own defaults; shapes always."""
        always, usual = ("batches", "sequence_bins", "shapes"), AscendCompile()
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        del values["options"]
        found = {name: value for name, value in values.items() if name in always or value != getattr(usual, name)}
        return found | dict(self.options)

    def words(self, candidate: Candidate) -> tuple[str, ...]:
        q, words = candidate.quantization, []
        if q.calibrator is not None:
            words.append(f"by {'AMCT' if q.calibrator == 'amct' else 'the workbench'}")
        if q.scheme != "none" and candidate.precision.mode != PRECISION_MODES[0]:
            words.append(f"the rest {candidate.precision.mode}")
        if len(self.batches) > 1:
            words.append(f"batches {' '.join(map(str, self.batches))}")
        if self.shapes == "gears":
            words.append("gears")
        if self.disabled_fusions:
            words.append("no " + ", ".join(self.disabled_fusions))
        if self.enabled_fusions:
            words.append("with " + ", ".join(self.enabled_fusions))
        said = ("batches", "sequence_bins", "shapes", "disabled_fusions", "enabled_fusions")
        for name, value in self.shown().items():
            if name not in said:
                words.append(f"{name} {' '.join(value) if isinstance(value, tuple) else str(value).lower()}")
        return tuple(words)

    def check(self, candidate: Candidate) -> None:
        q, mode = candidate.quantization, candidate.precision.mode
        if candidate.serving.streams is not None:
            raise _wrong("serving.streams", "an Ascend session has one stream.", "Leave it out.")
        if candidate.serving.sequence_bins is not None:
            hint = "Name the bins in compile.sequence_bins."
            raise _wrong("serving.sequence_bins", "on Ascend every length is compiled.", hint)
        if (batch := candidate.serving.batch) > self.batches[-1]:
            rule = f"{batch} is larger than every compiled batch, {list(self.batches)}."
            raise _wrong("serving.batch", rule, "Name it in compile.batches too.")
        if "hif8" in mode:  # which ATC's own check lets pass on every chip (cmd_flag_info.cc:50-52)
            rule = f"{mode!r} is not supported by CANN 8.5, although ATC's own check lets it pass."
            raise _wrong("precision.mode", rule, "Choose another.")
        if q.scheme == "dynamic":
            rule = "ATC has no dynamic INT8 for ONNX models."
            raise _wrong("quantization.scheme", rule, "Use static or cfg.")
        if self.keep_dtype and mode in KEEPING_MODES:
            rule = f"is void with precision {mode}, which keeps every type."
            raise _wrong("compile.keep_dtype", rule, "Leave it out.")
        if q.scheme != "none":
            self._check_int8(mode)
        if q.attention_matmul and not q.activation_symmetric:
            rule = (
                "products of two activations can only be symmetric on Ascend (AMCT manual, quantization constraints)."
            )
            raise _wrong("quantization.attention_matmul", rule, "Set activation_symmetric to true with it.")

    def _check_int8(self, mode: str) -> None:
        """What the manual's General Restrictions forbid a quantized model; ATC itself does not look."""
        if self.shapes == "gears":
            rule = f"a quantized model cannot be compiled for dynamic shapes {_RESTRICTIONS}."
            raise _wrong("compile.shapes", rule, "Compile one static file for each batch and bin.")
        if mode not in INT8_MODES:
            rule = f"{mode} with a quantized model gives neither the speed nor the precision {_RESTRICTIONS}."
            raise _wrong("precision.mode", rule, f"With INT8: {', '.join(sorted(INT8_MODES))}.")
        precise = any(line.endswith("=high_precision") for line in self.op_precision_mode)
        if precise or self.op_select_implmode == "high_precision":
            key = f"compile.{'op_precision_mode' if precise else 'op_select_implmode'}"
            rule = f"high_precision kernels must not be combined with a quantized model {_RESTRICTIONS}."
            raise _wrong(key, rule, "Use high_performance, or leave it out.")


def _wrong(key: str, rule: str, hint: str | None = None) -> ConfigError:
    return ConfigError(rule, key=key, hint=hint)
