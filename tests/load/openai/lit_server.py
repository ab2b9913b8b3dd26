"""A server of OpenAI's API made with LitServe, as a program: `lit_server.py PORT`. It streams with known gaps.

A prompt that says 'pairs' gets two tokens in each chunk.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

import litserve
from litserve.specs.openai import ChatCompletionRequest

FIRST_S, GAP_S = 0.06, 0.02


class Words(litserve.LitAPI):
    def setup(self, device: str) -> None:
        """There is no model."""

    def decode_request(self, request: ChatCompletionRequest, context: dict[str, Any]) -> ChatCompletionRequest:
        return request

    def predict(self, request: ChatCompletionRequest, context: dict[str, Any]) -> Iterator[Any]:
        said = str(request.messages[-1].content)
        most = request.max_tokens or 1
        each = 2 if "pairs" in said else 1
        time.sleep(FIRST_S)
        for number in range(most // each or 1):
            if number:
                time.sleep(GAP_S * each)
            yield {"role": "assistant", "content": f"word{number} " * each}
        yield {"role": "assistant", "content": "", "prompt_tokens": 7, "completion_tokens": most}

    def encode_response(self, outputs: Iterator[Any], context: dict[str, Any]) -> Iterator[Any]:
        yield from outputs


if __name__ == "__main__":
    server = litserve.LitServer(Words(spec=litserve.OpenAISpec()), accelerator="cpu", workers_per_device=2)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False)
