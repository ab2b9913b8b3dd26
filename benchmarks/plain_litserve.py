"""What one writes first: a float model behind LitServe as its documentation shows it, every text padded to one length.

    python -m benchmarks.plain_litserve --model FILE --tokenizer FILE --labels FILE --length 64 --port 8000

Nothing is tuned: LitServe's defaults (no batching, one worker), ONNX Runtime's defaults.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import litserve
import numpy as np


class PlainApi(litserve.LitAPI):  # type: ignore[misc]  # LitServe ships no types
    """Text in, best label and its score out; the answer's form is that of `workbench serve`."""

    def __init__(self, model: Path, tokenizer: Path, labels: Path, length: int) -> None:
        super().__init__()
        self.files, self.length = (str(model), str(tokenizer), str(labels)), length

    def setup(self, device: str) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        model, tokenizer, labels = self.files
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(tokenizer)
        self.tokenizer.enable_truncation(self.length)
        self.tokenizer.enable_padding(length=self.length)
        self.labels = json.loads(Path(labels).read_text(encoding="utf-8"))
        self.inputs = {i.name for i in self.session.get_inputs()}

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe makes a schema of an annotation
        encoded = self.tokenizer.encode(request["text"])
        made = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        return {name: np.array([ids], dtype=np.int64) for name, ids in made.items() if name in self.inputs}

    def predict(self, x: dict[str, Any]) -> Any:
        return self.session.run(None, x)[0]

    def encode_response(self, output: Any) -> dict[str, Any]:
        logits = output[0]
        scores = np.exp(logits - logits.max())
        best = int(logits.argmax())
        return {"label": self.labels[best], "score": float(scores[best] / scores.sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "tokenizer", "labels"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    api = PlainApi(options.model, options.tokenizer, options.labels, options.length)
    # "auto" would run nvidia-smi; on a machine without a GPU both mean the same
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(host="127.0.0.1", port=options.port, generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
