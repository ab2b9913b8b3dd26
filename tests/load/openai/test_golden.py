"""Golden prompts asked of a server: one that answers with the checkpoint's own logits, and servers that do not."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.bundle.language import language_bundle
from workbench.api.llm import verify_served
from workbench.bundle import read_bundle
from workbench.bundle.prompts import golden_prompts
from workbench.commands.cli import app
from workbench.targets.ascend_llm.prompted import prompted
from workbench.values.errors import BundleError, ConfigError, MeasureError

Change = Callable[[Any], Any]
"""What a server does to the answer that it would give."""


def answered(body: Any) -> Any:
    """What vLLM answers to a completion with log-probabilities, from the checkpoint itself."""
    rows: list[np.ndarray[Any, Any]] = []
    model = prompted(language_bundle() / "model")
    [answer] = model.answers([body["prompt"]], body["max_tokens"], lambda _, __, row: rows.append(row))
    tops = []
    for row, token in zip(rows, answer, strict=True):
        wide = row.astype(np.float64)
        logarithms = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
        likeliest = {*np.argsort(-wide, kind="stable")[: body["logprobs"]].tolist(), token}
        tops.append({f"token_id:{one}": float(logarithms[one]) for one in likeliest})
    tokens = [f"token_id:{token}" for token in answer]
    return {"choices": [{"index": 0, "text": "…", "logprobs": {"tokens": tokens, "top_logprobs": tops}}]}


@contextlib.contextmanager
def serving(change: Change = lambda answer: answer, status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """A server's URL, and the bodies it was asked with."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, {"data": [{"id": "tiny"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({**body, "path": self.path, "key": self.headers.get("Authorization")})
            self._answer(status, change(answered(body)) if status == 200 else {"error": {"message": "no such model"}})

        def _answer(self, status: int, body: Any) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def first(answer: Any) -> Any:
    return answer["choices"][0]["logprobs"]


def moved(by: float) -> Change:
    def change(answer: Any) -> Any:
        first(answer)["top_logprobs"][2] = {k: v + by for k, v in first(answer)["top_logprobs"][2].items()}
        return answer

    return change


def another(place: int) -> Change:
    """The token of that place in the list of the likeliest instead of the first."""

    def change(answer: Any) -> Any:
        ordered = sorted(first(answer)["top_logprobs"][1].items(), key=lambda item: -item[1])
        first(answer)["tokens"][1] = ordered[place][0]
        return answer

    return change


def test_a_server_that_gives_the_bundles_answers_is_found_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "secret")  # the environment is the interface
    with serving() as (url, asked):
        found = verify_served(language_bundle(), f"{url}/v1", api_key_env="SERVER_KEY")
    assert not found.faults
    assert (found.prompts, found.tokens, found.ties) == (3, 24, 0)
    assert found.numbers == 3 * 8 * 20
    assert found.largest < 1e-5
    golden = golden_prompts(read_bundle(language_bundle()))
    assert [one["prompt"] for one in asked] == [list(prompt.ids) for prompt in golden.prompts]
    assert {(one["temperature"], one["max_tokens"], one["ignore_eos"], one["model"], one["path"]) for one in asked} == {
        (0, 8, True, "tiny", "/v1/completions")
    }
    assert asked[0]["key"] == "Bearer secret"


def test_differences_within_the_tolerance_pass_and_those_beyond_it_are_named() -> None:
    allowed = 2 * golden_prompts(read_bundle(language_bundle())).tolerance.absolute
    with serving(moved(allowed / 2)) as (url, _):
        near = verify_served(language_bundle(), url, model="tiny")
    assert not near.faults
    assert near.largest == pytest.approx(allowed / 2, rel=1e-3)
    with serving(moved(2 * allowed + 1)) as (url, _):
        far = verify_served(language_bundle(), url, model="tiny")
    assert len(far.faults) == 3
    assert far.faults[0].startswith("prompt 0, token 2 of its answer: a log-probability differs")


def test_another_token_is_a_tie_only_where_it_is_nearly_as_likely() -> None:
    golden = golden_prompts(read_bundle(language_bundle()))
    steps = [prompt.steps[1].logits for prompt in golden.prompts]
    near = [logits[0] - logits[1] <= 2 * golden.tolerance.margin(np.array(logits[:1]))[0] for logits in steps]
    with serving(another(1)) as (url, _):
        found = verify_served(language_bundle(), url, model="tiny")
    assert found.ties == sum(near)
    assert len(found.faults) == len(near) - sum(near)
    assert found.tokens == 2 * 3  # nothing is compared behind the token that is another one
    with serving(another(19)) as (url, _):
        faults = verify_served(language_bundle(), url, model="tiny").faults
    assert all("token 1 of its answer is" in fault for fault in faults)
    assert len(faults) == 3


def named_by_text(answer: Any) -> Any:
    first(answer)["tokens"] = ["the"] * 8
    return answer


def short(answer: Any) -> Any:
    first(answer)["tokens"].pop()
    return answer


def endless(answer: Any) -> Any:
    first(answer)["top_logprobs"][0]["token_id:1"] = 1e300
    return answer


def test_servers_of_another_kind_are_refused() -> None:
    refused: tuple[tuple[Change, type[Exception], str], ...] = (
        (named_by_text, ConfigError, "names tokens by their texts"),
        (short, MeasureError, "8 tokens were asked for"),
        (endless, MeasureError, "a log-probability is none"),
        (lambda answer: {"choices": []}, MeasureError, "no log-probabilities"),
        (lambda answer: [], MeasureError, "no log-probabilities"),
        (lambda answer: {"choices": [{"logprobs": None}]}, MeasureError, "no log-probabilities"),
        (lambda answer: b"<html>", MeasureError, "answers no JSON"),
    )
    for change, kind, words in refused:
        with serving(change) as (url, _), pytest.raises(kind, match=words):
            verify_served(language_bundle(), url)
    with serving(status=404) as (url, _), pytest.raises(ConfigError, match="status 404: no such model"):
        verify_served(language_bundle(), url)
    with pytest.raises(ConfigError, match="does not answer"):
        verify_served(language_bundle(), url, model="tiny")
    for wrong in ("https://x/v1", "file:///etc/passwd", "127.0.0.1:8000", "http://:80", "http://a:99999/"):
        with pytest.raises(ConfigError, match=r"is no address of a server|is no URL"):
            verify_served(language_bundle(), wrong, model="tiny")


def test_the_command_prints_faults_and_ends_with_one() -> None:
    runner = CliRunner()
    with serving() as (url, _):
        good = runner.invoke(app, ["verify", str(language_bundle()), "--url", url])
    assert good.exit_code == 0, good.output
    assert "3 golden prompts asked of the server" in good.output
    assert "golden samples not replayed" in good.output
    with serving(moved(1000.0)) as (url, _):
        bad = runner.invoke(app, ["verify", str(language_bundle()), "--url", url])
    assert bad.exit_code == 1
    assert "fault: prompt 0" in bad.output
    alone = runner.invoke(app, ["verify", str(language_bundle()), "--model", "tiny"])
    assert isinstance(alone.exception, ConfigError)


def test_a_bundle_of_another_kind_has_no_prompts_to_ask(tmp_path: Any) -> None:
    from tests.serve.making import make_bundle

    with pytest.raises(BundleError, match="no prompts of a language model"):
        verify_served(make_bundle(tmp_path), "http://127.0.0.1:9")
