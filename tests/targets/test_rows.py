"""A row's outputs depend on no batch, bin or grouping into calls, with every scheme on every target."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulated_cann import emulated_environment, switched_on
from tests.targets.masked_encoder import masked_encoder
from tests.word_pieces import write_tokenizer
from workbench.graph.read import read_model
from workbench.targets import open_target
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.base import Array, Session, Target, row_tolerance
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.testing.conformance import STATIC, compiled
from workbench.testing.encoder import VOCABULARY, record_for, save
from workbench.values.candidate import Candidate, Precision, Quantization
from workbench.values.preprocess import Encoded, Preprocessor, TokenInput, collate, open_preprocessor
from workbench.values.setting_groups import describe

LONGEST = 40
BINS = (16, LONGEST)
"""Where every length is compiled, these are."""

FLOAT = Candidate(target="onnxruntime")
DYNAMIC = Quantization(scheme="dynamic", weight_granularity="channel")
ATTENTION = replace(STATIC, activation_symmetric=True, attention_matmul=True)
HOST = [
    FLOAT,
    Candidate(target="onnxruntime", quantization=STATIC),
    Candidate(target="onnxruntime", quantization=ATTENTION),
    Candidate(target="openvino", compile=OpenVinoCompile()),
    Candidate(target="openvino", compile=OpenVinoCompile(), quantization=ATTENTION),
]
SET = AscendCompile(batches=(1, 3), sequence_bins=BINS)
DEVICE = [
    Candidate(target=ASCEND, precision=Precision(mode="force_fp16"), compile=SET),
    Candidate(target=ASCEND, precision=Precision(mode="force_fp16"), compile=replace(SET, shapes="gears")),
    Candidate(target=ASCEND, precision=Precision(mode="force_fp16"), compile=SET, quantization=ATTENTION),
]

TEXTS = st.lists(st.integers(2, LONGEST), min_size=2, max_size=9)
Place = tuple[Path, Preprocessor]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("masked")
    inputs = [TokenInput(name="input_ids", role="ids"), TokenInput(name="attention_mask", role="mask")]
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    return save(masked_encoder(), folder / "model.onnx"), open_preprocessor(
        tokenizer, max_length=LONGEST, bins=(LONGEST,), inputs=inputs
    )


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with switched_on(emulated_environment(tmp_path_factory.mktemp("cann"))):
        yield


def encoded(lengths: Sequence[int], seed: int) -> list[Encoded]:
    rng = np.random.default_rng(seed)
    ids = [tuple(int(i) for i in rng.integers(1, VOCABULARY, length)) for length in lengths]
    return [Encoded(ids=one, types=(0,) * len(one)) for one in ids]


def opened(place: Place, candidate: Candidate, to: Path) -> Session:
    path, preprocessor = place
    target: Target = open_target(candidate.target)
    record = None
    if candidate.quantization.calibrated:
        feeds = collate(preprocessor, encoded([5, 12, 30, LONGEST] * 4, seed=99))
        products = bool(candidate.quantization.attention_matmul)
        record = record_for(path, feeds, symmetric=bool(candidate.quantization.activation_symmetric), products=products)
    return target.open(*compiled(target, read_model(path), candidate, record, to), candidate)


def rows(
    session: Session, preprocessor: Preprocessor, texts: Sequence[Encoded], calls: Sequence[Sequence[int]]
) -> list[dict[str, Array]]:
    """Each text's own outputs, padding cut off, in the order of the texts, however they were put into calls."""
    found: dict[int, dict[str, Array]] = {}
    for members in calls:
        outputs = session.run(collate(preprocessor, [texts[i] for i in members]))
        for row, i in enumerate(members):
            found[i] = {"logits": outputs["logits"][row], "tags": outputs["tags"][row, : len(texts[i].ids)]}
    return [found[i] for i in range(len(texts))]


def moved(session: Session, place: Place, data: st.DataObject, *, any_bins: bool) -> float:
    """Draw texts, order, split and bins: by which share of the largest output a row moved against being run alone.

    Args:
        any_bins: any length may be a bin, and alone a text is not padded at all.
    """
    texts = encoded(data.draw(TEXTS, "lengths"), data.draw(st.integers(0, 99), "seed"))
    order = data.draw(st.permutations(range(len(texts))), "order")
    cuts = sorted(data.draw(st.sets(st.integers(1, len(texts) - 1)), "cuts"))
    calls = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(texts)], strict=True)]
    lengths = st.integers(2, LONGEST - 1) if any_bins else st.sampled_from(BINS[:-1])
    bins = (*sorted(data.draw(st.sets(lengths, max_size=3), "bins")), LONGEST)
    tight = replace(place[1], bins=tuple(range(1, LONGEST + 1)))

    alone = rows(session, tight if any_bins else place[1], texts, [[i] for i in range(len(texts))])
    together = rows(session, replace(place[1], bins=bins), texts, calls)

    found = 0.0
    for name in ("logits", "tags"):
        largest = max(float(np.abs(one[name]).max()) for one in alone)
        for one, other in zip(alone, together, strict=True):
            found = max(found, float(np.abs(one[name].astype(np.float64) - other[name]).max()) / largest)
    return found


@pytest.mark.parametrize("candidate", [*HOST, *DEVICE], ids=describe)
def test_a_row_moves_little(place: Place, candidate: Candidate, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if candidate.target == "openvino" and find_spec("openvino") is None:
        pytest.skip("OpenVINO is not installed")
    if candidate.target == ASCEND:
        request.getfixturevalue("emulated")
    session, tolerance = opened(place, candidate, tmp_path), row_tolerance(candidate)
    assert tolerance is not None

    @settings(deadline=None, max_examples=25)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        assert moved(session, place, data, any_bins=candidate.target != ASCEND) <= tolerance

    try:
        holds()
    finally:
        session.close()


def test_with_dynamic_scales_a_row_follows_its_batch(place: Place, tmp_path: Path) -> None:
    candidate = Candidate(target="onnxruntime", quantization=DYNAMIC)
    session = opened(place, candidate, tmp_path)
    texts = encoded([4, 9, 17, 30], seed=1)

    alone = rows(session, place[1], texts, [[i] for i in range(4)])
    together = rows(session, place[1], texts, [range(4)])

    session.close()
    assert row_tolerance(candidate) is None
    issues = open_target("onnxruntime").check(read_model(place[0]), candidate)
    assert [i.remedy for i in issues if i.operator == "dynamic INT8"] == [
        "Serve it in batches of one, or use static INT8, whose scales are fixed."
    ]
    assert any(np.abs(a["logits"] - b["logits"]).max() > 1e-3 for a, b in zip(alone, together, strict=True))
