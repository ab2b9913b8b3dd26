"""A bundle of the second CPU runtime behind the same front end."""

import concurrent.futures
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.serve.making import LABELS, make_bundle, running
from workbench.bundle import preprocessor_of, read_bundle
from workbench.targets import open_target
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.candidate import Candidate
from workbench.values.preprocess import collate, encode

pytestmark = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="openvino is not installed")

TEXTS = ("anna paid", "loan due in paris", "bell", "york " * 12, "new york loan due in new york")


def test_answers_are_those_of_the_session(tmp_path: Path) -> None:
    candidate = Candidate(target="openvino", compile=OpenVinoCompile())
    bundle = read_bundle(make_bundle(tmp_path, candidate=candidate))
    manifest, preprocessor = bundle.manifest, preprocessor_of(bundle)
    assert preprocessor is not None
    session = open_target("openvino").open(manifest.artifact, bundle.model_directory, candidate)
    logits = [session.run(collate(preprocessor, encode(preprocessor, [text])))["logits"][0] for text in TEXTS]
    session.close()

    with running(bundle.directory) as service, concurrent.futures.ThreadPoolExecutor(5) as pool:
        toolchain = service.request("GET", "/info").body
        alone = [reply.body for reply in pool.map(lambda text: service.predict({"text": text}), TEXTS)]
        together = service.predict({"texts": TEXTS}).body["results"]

    assert "openvino" in str(toolchain)
    for answers in (alone, together):
        for answer, row in zip(answers, logits, strict=True):
            scores = np.exp(row.astype(np.float64) - row.max())
            expected = dict(zip(LABELS, (scores / scores.sum()).tolist(), strict=True))
            assert answer["scores"] == pytest.approx(expected, abs=2e-6)
