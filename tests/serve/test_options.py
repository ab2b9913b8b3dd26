"""What a service is told when it starts: what stays closed, who is asked for a key, and what is refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.serve.making import Running, make_bundle, running
from workbench.bundle.opened import read_bundle
from workbench.serve.__main__ import start
from workbench.serve.access import drawn_key
from workbench.serve.lifecycle import with_room
from workbench.serve.settings import Limits, ServeSettings
from workbench.values.errors import ConfigError
from workbench.values.model import TensorSpec

SECRET, LINE = drawn_key("first")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text(f"{LINE}\n")
    return path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def service(bundle: Path, keys: Path) -> Iterator[Running]:
    more = ("--api-keys", str(keys))
    with running(bundle, *more, "--allowed-host", "model.example") as found:
        yield found


def test_keys_are_named_and_rotated_while_the_service_runs(service: Running, keys: Path) -> None:
    assert service.request("GET", "/health", Host="model.example").status == 200, "an --allowed-host"
    second, line = drawn_key("second")
    assert service.predict({"text": "anna"}, **{"X-API-Key": second}).status == 401
    keys.write_text(f"{LINE}\n{line}\n")
    service.wait_until(lambda: service.predict({"text": "anna"}, **{"X-API-Key": second}).status == 200)
    assert service.predict({"text": "anna"}, **{"X-API-Key": SECRET}).status == 200
    keys.write_text(f"{line}\n")
    service.wait_until(lambda: service.predict({"text": "anna"}, **{"X-API-Key": SECRET}).status == 401)
    text = service.request("GET", "/metrics").body.decode()
    assert 'workbench_key_requests_total{key="first"}' in text
    assert 'workbench_key_requests_total{key="second"}' in text
    assert SECRET not in text + service.log.read_text()


def test_options_are_checked_before_anything_starts(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_API_KEY", raising=False)
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"host": "0.0.0.0"}, "--host: 0.0.0.0 is not loopback, and no key is asked for."),
        ({"host": "a..b", "no_key": True}, "--host: 'a..b' is no address: "),  # found without asking a name server
        ({"api_keys": Path("/nowhere/keys")}, "/nowhere/keys: --api-keys: "),
        ({"allowed_host": ["http://a"]}, "--allowed-host: 'http://a' is no host."),
        ({"port": 70_000}, "--port: 70000 is no port."),
        ({"devices": "0"}, "--devices: '0' names no cards."),
        ({"devices": "cards"}, "--devices: 'cards' names no cards."),
        ({"devices": ","}, "--devices: ',' names no cards."),
        ({"devices": "1,1"}, "--devices: '1,1' names a card twice."),
        ({"devices": "all"}, "--devices: all: target onnxruntime computes on the host's processors and has no"),
        ({"front_ends": "many"}, "--front-ends: 'many' is neither a number nor auto."),
        ({"front_ends": "0"}, "--front-ends: 0 is not 1 to 64."),
    )
    for changed, said in changes:
        with pytest.raises(ConfigError) as error:
            start(bundle, ServeSettings(**{"port": 0, **changed}), Limits())
        assert said in str(error.value)
    with pytest.raises(ConfigError, match="--max-connections: 0 is not positive"):
        Limits(connections=0)


def test_a_picture_fits_into_a_body_and_texts_keep_their_limit(bundle: Path) -> None:
    opened, settings = read_bundle(bundle), ServeSettings()
    picture = TensorSpec(name="input", dtype="float32", shape=("batch", 3, 240, 320))
    manifest = replace(opened.manifest, text=None, model=replace(opened.manifest.model, inputs=(picture,)))

    def room(axes: tuple[int | str, ...]) -> int:
        spec = replace(picture, shape=axes)
        changed = replace(manifest, model=replace(manifest.model, inputs=(spec,)))
        return with_room(settings, replace(opened, manifest=changed)).limits.body_bytes

    limits = with_room(settings, replace(opened, manifest=manifest)).limits

    assert with_room(settings, opened) == settings
    assert limits.body_bytes == 2 * 26 * 3 * 240 * 320 > Limits().body_bytes
    assert limits.unread_bytes >= 16 * limits.body_bytes
    assert room(("batch", 3, 240, 320, "more")) == 4 * limits.body_bytes
