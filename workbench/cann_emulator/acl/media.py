"""The module `acl.media`: its memory and its descriptions; picture and video units are not emulated.

A program builds descriptions and configurations as it would on a card. What needs the units, from
`dvpp_create_channel` on, gives FEATURE_UNSUPPORTED (200006) with a reason text: the product runs text models, and the
vendor's first media interface is not what an Ascend 910B3 is programmed with [inferred]. Forms of the calls: the
binding's open source of 2026, media_common.cpp, media_vpc.cpp, media_jpeg.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.cann_emulator.acl import codes, handles, leaks, reason, rt_memory
from workbench.cann_emulator.acl.call import call, site

_SIZES = {"data": "k", "size": "I", "format": "i"}
_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "pic_desc": {
        **_SIZES,
        **dict.fromkeys(("width", "height", "width_stride", "height_stride", "ret_code"), "I"),
    },
    "stream_desc": {**_SIZES, "timestamp": "K", "ret_code": "I", "eos": "I"},
    "channel_desc": {"mode": "I"},
    "resize_config": {"interpolation": "I"},
    "jpege_config": {"level": "I"},
    "roi_config": dict.fromkeys(("left", "right", "top", "bottom"), "I"),
}
"""What `dvpp_create_…` makes, and its fields with the forms of their setters and getters."""
_UNITS: Mapping[str, tuple[str, str]] = {
    "dvpp_create_channel": ("k", "r"),
    "dvpp_destroy_channel": ("k", "r"),
    "dvpp_vpc_resize_async": ("kkkkk", "r"),
    "dvpp_vpc_crop_async": ("kkkkk", "r"),
    "dvpp_vpc_crop_resize_async": ("kkkkkk", "r"),
    "dvpp_vpc_crop_and_paste_async": ("kkkkkk", "r"),
    "dvpp_vpc_convert_color_async": ("kkkk", "r"),
    "dvpp_jpeg_decode_async": ("kkIkk", "r"),
    "dvpp_jpeg_encode_async": ("kkkkkk", "r"),
    "dvpp_jpeg_get_image_info": ("kI", "IIir"),
    "dvpp_jpeg_predict_dec_size": ("kIi", "Ir"),
    "dvpp_jpeg_predict_enc_size": ("kk", "Ir"),
    "dvpp_png_decode_async": ("kkIkk", "r"),
    "dvpp_png_get_image_info": ("kI", "IIir"),
    "dvpp_png_predict_dec_size": ("kIi", "Ir"),
    "vdec_create_channel": ("k", "r"),
    "vdec_destroy_channel": ("k", "r"),
    "venc_create_channel": ("k", "r"),
    "venc_destroy_channel": ("k", "r"),
}
"""What only the units could do: forms of arguments and result."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Description:
    kind: str
    values: dict[str, int]
    site: tuple[str, int]
    handle: int = 0


@call("k", "kr")
def dvpp_malloc(size: int) -> tuple[int, int]:
    """Device memory that the picture units may use."""
    return rt_memory.malloc_block(size)


@call("k", "r")
def dvpp_free(ptr: int) -> int:
    """Null is no mistake here."""
    return rt_memory.free_block(ptr) if ptr else 0


def _functions() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}

    def add(name: str, takes: str, gives: str, function: Callable[..., Any]) -> None:
        function.__name__ = name
        found[name] = call(takes, gives, device=name in _UNITS)(function)

    for kind, fields in _DESCRIPTIONS.items():
        given = "IIII" if kind == "roi_config" else ""
        add(f"dvpp_create_{kind}", given, "k", _creator(kind, tuple(fields) if given else ()))
        add(f"dvpp_destroy_{kind}", "k", "r", _destroyer(kind))
        for name, form in fields.items():
            add(f"dvpp_set_{kind}_{name}", f"k{form}", "r", _setter(kind, name))
            add(f"dvpp_get_{kind}_{name}", "k", form, _getter(kind, name))
    for name, (takes, gives) in _UNITS.items():
        add(name, takes, gives, _refusal(name, len(gives) - 1))
    return found


def _creator(kind: str, fields: tuple[str, ...]) -> Callable[..., int]:
    def create(*values: int) -> int:
        made = _Description(kind=kind, values=dict(zip(fields, values, strict=True)), site=site())
        made.handle = handles.give(made)
        return made.handle

    return create


def _destroyer(kind: str) -> Callable[[int], int]:
    def destroy(handle: int) -> int:
        if _look(kind, handle) is None:
            return codes.INVALID_PARAM
        handles.drop(handle)
        return 0

    return destroy


def _setter(kind: str, name: str) -> Callable[[int, int], int]:
    def put(handle: int, value: int) -> int:
        found = _look(kind, handle)
        if found is None:
            return codes.INVALID_PARAM
        found.values[name] = value
        return 0

    return put


def _getter(kind: str, name: str) -> Callable[[int], int]:
    def get(handle: int) -> int:
        found = _look(kind, handle)
        return found.values.get(name, 0) if found is not None else 0

    return get


def _refusal(name: str, values: int) -> Callable[..., Any]:
    def refuse(*_: int) -> Any:
        reason.report("EH0006", feature=f"acl.media.{name}", reason="this module is emulated, without media units")
        failed = (*[0] * values, codes.FEATURE_UNSUPPORTED)
        return failed if values else failed[0]

    return refuse


def _look(kind: str, handle: int) -> _Description | None:
    found = handles.look(handle, _Description)
    if found is None or found.kind != kind:
        reason.report("EH0002", param=kind)
        return None
    return found


leaks.watch(_Description, "media descriptions")
_GENERATED = _functions()
globals().update(_GENERATED)


def __dir__() -> list[str]:
    return sorted(("dvpp_free", "dvpp_malloc", *_GENERATED))
