"""Golden prompts asked of a server: one that answers with the checkpoint's own logits, and servers that do not."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.bundle.language import language_bundle
from tests.load import servers
from tests.load.servers import Server
from workbench.api.llm import verify_served
from workbench.bundle.opened import read_bundle
from workbench.bundle.prompts import golden_prompts
from workbench.commands.cli import app
from workbench.targets.ascend_llm.target import prompted
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
def serving(change: Change = lambda answer: answer, status: str = "200 OK") -> Iterator[Server]:
    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        said = change(answered(json.loads(body))) if status == "200 OK" else {"error": {"message": "no such model"}}
        writer.write(servers.answer(status, said if isinstance(said, bytes) else json.dumps(said).encode()))
        return True

    with servers.serving(handle, {"/v1/models": b'{"data": [{"id": "tiny"}]}'}) as server:
        yield server


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
    with serving() as server:
        found = verify_served(language_bundle(), f"{server.url}/v1", api_key_env="SERVER_KEY")
    assert not found.faults
    assert (found.prompts, found.tokens, found.ties) == (3, 24, 0)
    assert found.numbers == 3 * 8 * 20
    assert found.largest < 1e-5
    golden = golden_prompts(read_bundle(language_bundle()))
    asked = [json.loads(body) for body in server.bodies]
    assert [one["prompt"] for one in asked] == [list(prompt.ids) for prompt in golden.prompts]
    assert {(one["temperature"], one["max_tokens"], one["ignore_eos"], one["model"]) for one in asked} == {
        (0, 8, True, "tiny")
    }
    assert all(head.startswith(b"POST /v1/completions ") for head in server.heads)
    assert b"\r\nAuthorization: Bearer secret\r\n" in server.heads[0]


def test_differences_within_the_tolerance_pass_and_those_beyond_it_are_named() -> None:
    allowed = 2 * golden_prompts(read_bundle(language_bundle())).tolerance.absolute
    with serving(moved(allowed / 2)) as server:
        near = verify_served(language_bundle(), server.url, model="tiny")
    assert not near.faults
    assert near.largest == pytest.approx(allowed / 2, rel=1e-3)
    with serving(moved(2 * allowed + 1)) as server:
        far = verify_served(language_bundle(), server.url, model="tiny")
    assert len(far.faults) == 3
    assert far.faults[0].startswith("prompt 0, token 2 of its answer: a log-probability differs")


def test_another_token_is_a_tie_only_where_it_is_nearly_as_likely() -> None:
    golden = golden_prompts(read_bundle(language_bundle()))
    steps = [prompt.steps[1].logits for prompt in golden.prompts]
    near = [logits[0] - logits[1] <= 2 * golden.tolerance.margin(np.array(logits[:1]))[0] for logits in steps]
    with serving(another(1)) as server:
        found = verify_served(language_bundle(), server.url, model="tiny")
    assert found.ties == sum(near)
    assert len(found.faults) == len(near) - sum(near)
    assert found.tokens == 2 * 3  # nothing is compared behind the token that is another one
    with serving(another(19)) as server:
        faults = verify_served(language_bundle(), server.url, model="tiny").faults
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
        with serving(change) as server, pytest.raises(kind, match=words):
            verify_served(language_bundle(), server.url)
    with serving(status="404 Not Found") as server, pytest.raises(ConfigError, match="status 404: no such model"):
        verify_served(language_bundle(), server.url)
    with pytest.raises(ConfigError, match="does not answer"):
        verify_served(language_bundle(), server.url, model="tiny")
    for wrong in ("https://x/v1", "file:///etc/passwd", "127.0.0.1:8000", "http://:80", "http://a:99999/"):
        with pytest.raises(ConfigError, match=r"is no address of a server|is no URL"):
            verify_served(language_bundle(), wrong, model="tiny")


def test_the_command_prints_faults_and_ends_with_one() -> None:
    runner = CliRunner()
    with serving() as server:
        good = runner.invoke(app, ["verify", str(language_bundle()), "--url", server.url])
    assert good.exit_code == 0, good.output
    assert "3 golden prompts asked of the server" in good.output
    assert "golden samples not replayed" in good.output
    with serving(moved(1000.0)) as server:
        bad = runner.invoke(app, ["verify", str(language_bundle()), "--url", server.url])
    assert bad.exit_code == 1
    assert "fault: prompt 0" in bad.output
    alone = runner.invoke(app, ["verify", str(language_bundle()), "--model", "tiny"])
    assert isinstance(alone.exception, ConfigError)


def test_a_bundle_of_another_kind_has_no_prompts_to_ask(tmp_path: Any) -> None:
    from tests.serve.making import make_bundle

    with pytest.raises(BundleError, match="no prompts of a language model"):
        verify_served(make_bundle(tmp_path), "http://127.0.0.1:9")
