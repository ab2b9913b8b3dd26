"""Bundles of language models: what they hold, how they are replayed, and every way to tamper with one."""

import contextlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bundle.language import language_bundle
from tests.bundle.making import places, put, reseal
from tests.targets.ascend_llm.checkpoints import DYNAMIC, STATIC
from tests.targets.ascend_llm.folders import TEXTS
from workbench.api.bundle import load_bundle
from workbench.bundle.golden import golden_batches
from workbench.bundle.opened import read_bundle
from workbench.bundle.prompts import MOST_SHARE, PROMPTS, golden_prompts, replay_prompts
from workbench.bundle.readme import description, provenance
from workbench.bundle.verify import verify_bundle
from workbench.targets.ascend_llm.target import prompted
from workbench.values.errors import BundleError

WEIGHTS = "model/quant_model_weight_w8a8.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(language_bundle(), tmp_path / "bundle"))


def change_json(file: Path, change: Callable[[Any], Any]) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    given_back = change(found)
    file.write_text(json.dumps(found if given_back is None else given_back), encoding="utf-8")


def tensor_bytes(file: Path, name: str) -> tuple[int, int]:
    """Where a tensor's values lie in a safetensors file."""
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    start, end = json.loads(content[8 : 8 + size])[name]["data_offsets"]
    return 8 + size + start, 8 + size + end


# --- what it is -------------------------------------------------------------------------------------------------------


def test_a_bundle_replays_to_the_bit_where_it_was_made() -> None:
    report = verify_bundle(language_bundle())
    assert report.prompts is not None
    assert (report.samples, report.largest_error, report.prompts.share, report.prompts.ties) == (3, 0.0, 0.0, 0)
    assert report.prompts.logits == 3 * 8 * 20
    assert "3 golden prompts replayed on the processor: 480 logits" in report.summary


def test_prompts_are_the_beginnings_of_texts_with_the_likeliest_answer() -> None:
    bundle = read_bundle(language_bundle())
    kept = golden_prompts(bundle)
    assert [prompt.text for prompt in kept.prompts] == TEXTS
    said: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
    model = prompted(bundle.model_directory)
    answers = model.answers([prompt.ids for prompt in kept.prompts], 8, lambda p, t, row: said.update({(p, t): row}))
    for number, prompt in enumerate(kept.prompts):
        assert answers[number] == list(prompt.answer)
        for token, step in enumerate(prompt.steps):
            row = said[number, token].astype(np.float64)
            assert step.ids[0] == prompt.answer[token] == int(row.argmax())
            assert step.logits == tuple(row[list(step.ids)])
            probabilities = np.exp(row) / np.exp(row).sum()
            assert np.exp(step.log_probabilities) == pytest.approx(probabilities[list(step.ids)])


def test_an_eight_bit_cache_and_pdmix_are_replayed_in_the_arithmetic_of_decoding() -> None:
    for option in ("use_kvcache_quant", "pdmix"):
        bundle = language_bundle(lines=(f"{STATIC[:-1]}, {option}: True}}",))
        report = verify_bundle(bundle)
        assert report.prompts is not None
        assert report.prompts.share == 0.0
        assert len(golden_prompts(read_bundle(bundle)).ways) == 1


def test_what_a_registry_and_a_reader_see_says_that_no_card_was_there() -> None:
    bundle = read_bundle(language_bundle(lines=(DYNAMIC,)))
    assert provenance(bundle)["figures"] == "not measured"
    said = description(bundle)
    assert "recipe " in said
    readme = (bundle.directory / "README.md").read_text(encoding="utf-8")
    assert "No card was there" in readme
    assert "14 W8A8_DYNAMIC" in readme
    assert "deploy/serve_vllm.sh" in readme
    parts = json.loads((bundle.directory / "sbom.cdx.json").read_text(encoding="utf-8"))["components"]
    assert not [part for part in parts if part["type"] == "library"]
    assert any("language model, a folder," in part.get("description", "") for part in parts)


def test_no_service_of_the_workbench_opens_one() -> None:
    with pytest.raises(BundleError, match=r"deploy/README\.md"):
        load_bundle(language_bundle())
    with pytest.raises(BundleError, match="prompts, and no samples"):
        golden_batches(read_bundle(language_bundle()))


# --- whoever can change the sums too ----------------------------------------------------------------------------------


def flip_scale(folder: Path) -> None:
    start, _ = tensor_bytes(folder / WEIGHTS, "model.layers.0.mlp.down_proj.deq_scale")
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[start + 3] ^= 0x80
    (folder / WEIGHTS).write_bytes(content)


def cut_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def zero_weights(folder: Path) -> None:
    start, end = tensor_bytes(folder / WEIGHTS, "model.layers.1.self_attn.o_proj.weight")
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[start:end] = bytes(end - start)
    (folder / WEIGHTS).write_bytes(content)


def exchange_words(folder: Path) -> None:
    def change(body: Any) -> None:
        vocabulary = body["model"]["vocab"]
        vocabulary["pump"], vocabulary["water"] = vocabulary["water"], vocabulary["pump"]

    change_json(folder / "model/tokenizer.json", change)


def test_a_changed_checkpoint_with_sums_that_fit_does_not_verify(tmp_path: Path) -> None:
    for attack, words in (
        (flip_scale, "differs by|lower|deq_scale"),
        (cut_weights, "no readable safetensors file"),
        (zero_weights, "differs by|lower"),
        (exchange_words, "becomes other ids"),
    ):
        folder = Path(shutil.copytree(language_bundle(), tmp_path / attack.__name__))
        attack(folder)
        reseal(folder, {})
        with pytest.raises(BundleError, match=words):
            verify_bundle(folder)


def test_prompts_beyond_their_bounds_are_refused(folder: Path) -> None:
    sound, wide = (folder / PROMPTS).read_text(encoding="utf-8"), {"absolute": 100.0, "relative": 0.01}
    rows: tuple[tuple[tuple[str | int, ...], Any, str, dict[str, object]], ...] = (
        (("prompts", 0, "ids", 0), 96, "beyond the vocabulary", {}),
        (("prompts", 0, "ids"), [1] * 5000, "too many", {}),
        (("prompts", 0, "answer"), [1] * 5, "steps|length", {}),
        (("prompts",), [], "none, or too many", {}),
        (("vocabulary",), 1 << 40, "too many", {}),
        (("prompts", 0, "steps", 0, "logits", 0), 1e31, "none", {}),
        (("prompts", 0, "steps", 0, "ids", 1), 95, ".", {}),
        (("tolerance", "absolute"), 1e6, "would prove nothing|another than the manifest", {}),
        (("tolerance", "relative"), 1.0, "none", {}),
        (("prompts", 0, "text"), "x" * (1 << 21), "too many", {}),
        (("prompts", 0, "text"), "a\x1b[2J", "U\\+001B", {}),
        (("version",), 2, "unknown", {}),
        (("tolerance",), wide, f"more than {MOST_SHARE:.0%} of the largest", {"tolerance": wide}),
    )
    for keys, value, words, manifest in rows:
        body = json.loads(sound)
        put(body, keys, value)
        (folder / PROMPTS).write_text(json.dumps(body), encoding="utf-8")
        reseal(folder, manifest)
        with pytest.raises(BundleError, match=words):
            verify_bundle(folder)
    (folder / PROMPTS).write_text("[" + "0," * (1 << 24) + "0]")  # it is not even parsed
    reseal(folder, {})
    with pytest.raises(BundleError, match="more than 32 MiB"):
        golden_prompts(read_bundle(folder))


WEIRD: tuple[Any, ...] = (None, -1, 1 << 70, 1.5, "", "x", [], {}, [[]], True, "../x")


@pytest.fixture(scope="module")
def bent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose prompts are replaced again and again; one of them, one step."""
    folder = Path(shutil.copytree(language_bundle(), tmp_path_factory.mktemp("bent") / "bundle"))

    def shorten(body: Any) -> None:
        first = body["prompts"][0]
        body["prompts"] = [{**first, "steps": first["steps"][:1], "answer": first["answer"][:1]}]

    change_json(folder / PROMPTS, shorten)
    reseal(folder, {"golden_batches": 1})
    golden_prompts(read_bundle(folder))
    return folder


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_value_bent_in_the_prompts_gets_beyond_a_bundle_error(bent: Path, data: st.DataObject) -> None:
    before = (bent / PROMPTS).read_text(encoding="utf-8")
    body = json.loads(before)
    put(body, data.draw(st.sampled_from(sorted(places(body), key=str))), data.draw(st.sampled_from(WEIRD)))
    (bent / PROMPTS).write_text(json.dumps(body), encoding="utf-8")
    reseal(bent, {})
    try:
        with contextlib.suppress(BundleError):
            golden_prompts(read_bundle(bent))
    finally:
        (bent / PROMPTS).write_text(before, encoding="utf-8")


# --- comparing --------------------------------------------------------------------------------------------------------


class Moved:
    """A model whose logits are all moved by some function of the row; otherwise the bundle's own."""

    def __init__(self, folder: Path, move: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> None:
        self._model, self._move = prompted(folder / "model"), move
        self.vocabulary, self.context, self.device_words = self._model.vocabulary, self._model.context, ""
        self.ids, self.text, self.ways = self._model.ids, self._model.text, self._model.ways

    def answers(self, prompts: Any, tokens: int, seen: Any, *, given: Any = None) -> list[list[int]]:
        return self._model.answers(prompts, tokens, lambda p, t, row: seen(p, t, self._move(row)), given=given)


def test_a_difference_within_the_tolerance_is_reported_and_one_beyond_it_or_no_number_refused() -> None:
    bundle = read_bundle(language_bundle())
    allowed = golden_prompts(bundle).tolerance.absolute
    within = replay_prompts(bundle, Moved(bundle.directory, lambda row: row + np.float32(allowed / 2)))
    assert within.largest == pytest.approx(allowed / 2, rel=0.01)
    assert within.largest_log < 1e-3
    assert 0.3 < within.share <= 0.5
    with pytest.raises(BundleError, match="token 0 of its answer: a logit differs"):
        replay_prompts(bundle, Moved(bundle.directory, lambda row: row + np.float32(2 * allowed + 1)))
    with pytest.raises(Exception, match="NaN or infinite"):
        replay_prompts(bundle, Moved(bundle.directory, lambda row: np.full_like(row, np.nan)))
