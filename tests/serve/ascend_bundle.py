"""A bundle of an INT8 text classifier compiled for 910B3 by the emulated CANN, and what its session answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.emulated_cann import emulated_environment, switched_on
from tests.serve.making import bundle_of
from tests.word_pieces import write_tokenizer
from workbench.bundle.opened import read_bundle
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.testing.conformance import STATIC
from workbench.testing.encoder import VOCABULARY, ids, record_for, save, tiny_encoder
from workbench.values.candidate import Candidate, Precision
from workbench.values.preprocess import TokenInput, collate, encode, open_preprocessor
from workbench.values.service import ServiceSettings

BATCHES, BINS = (1, 4), (4, 16)
LABELS = ("a", "b", "c", "d", "e")
WORDS = ("[PAD]", "[UNK]", *(f"w{n}" for n in range(VOCABULARY - 2)))
TEXTS = ("w1 w2", "w3", "w4 w5 w6 w7", "w1 w9 w2 w8 w3 w7", "w20 w21 w22 w23 w24 w25 w26 w27 w28", "w29 w29 w29 w2 w2")


@dataclass(frozen=True, kw_only=True)
class Made:
    """The bundle, the environment its device is emulated in, and text → logits by a session of its own."""

    bundle: Path
    environment: Mapping[str, str]
    state: Path
    logits: Mapping[str, np.ndarray]


def make_ascend_bundle(root: Path) -> Made:
    """Static files for every one of BATCHES and BINS; logits of each text alone in its own bin."""
    environment = emulated_environment(root / "cann")
    candidate = Candidate(
        target=ASCEND,
        precision=Precision(mode="force_fp16"),
        quantization=STATIC,
        compile=AscendCompile(batches=BATCHES, sequence_bins=BINS),
    )
    with switched_on(environment):
        file = save(tiny_encoder(), root / "model.onnx")
        tokenizer, inputs = write_tokenizer(root / "tokenizer.json", WORDS), [TokenInput(name="ids", role="ids")]
        preprocessor = open_preprocessor(tokenizer, max_length=BINS[-1], bins=BINS, inputs=inputs)
        bundle = bundle_of(
            root,
            candidate,
            collate(preprocessor, encode(preprocessor, TEXTS)),
            texts=TEXTS,
            record=record_for(file, ids(8, 16)),
            name="tiny-910b3",
            task="classification",
            labels=LABELS,
            preprocessor=preprocessor,
            service=ServiceSettings(max_batch_size=4, batch_timeout_ms=5.0, workers=1),
        )
        session = AscendTarget().open(read_bundle(bundle).manifest.artifact, bundle / "model", candidate)
        alone = {text: collate(preprocessor, encode(preprocessor, [text])) for text in TEXTS}
        logits = {text: session.run(feeds)["logits"][0] for text, feeds in alone.items()}
        session.close()
    names = [n for n in environment if n.startswith(("ASCEND_", "CANN_", "LD_", "PYTHON", "PATH", "TOOLCHAIN"))]
    return Made(
        bundle=bundle,
        environment={name: environment[name] for name in names},
        state=Path(environment["CANN_EMULATOR_STATE"]),
        logits=logits,
    )
