"""Limits of a body follow from what one sample takes."""

from dataclasses import replace
from pathlib import Path

from tests.serve.making import make_bundle
from workbench.bundle import read_bundle
from workbench.serve.settings import Limits, ServeSettings, with_room
from workbench.values.model import TensorSpec
from workbench.values.service import ServiceSettings


def test_a_picture_fits_into_a_body_and_texts_keep_their_limit(tmp_path: Path) -> None:
    bundle, settings = read_bundle(make_bundle(tmp_path)), ServeSettings(service=ServiceSettings())
    picture = TensorSpec(name="input", dtype="float32", shape=("batch", 3, 240, 320))
    manifest = replace(bundle.manifest, text=None, model=replace(bundle.manifest.model, inputs=(picture,)))

    def room(axes: tuple[int | str, ...]) -> int:
        spec = replace(picture, shape=axes)
        changed = replace(manifest, model=replace(manifest.model, inputs=(spec,)))
        return with_room(settings, replace(bundle, manifest=changed)).limits.body_bytes

    limits = with_room(settings, replace(bundle, manifest=manifest)).limits

    assert with_room(settings, bundle) == settings
    assert limits.body_bytes == 2 * 26 * 3 * 240 * 320 > Limits().body_bytes
    assert limits.unread_bytes >= 16 * limits.body_bytes
    assert room(("batch", 3, 240, 320, "more")) == 4 * limits.body_bytes
