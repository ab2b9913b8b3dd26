"""Which texts become golden prompts, and what is refused."""

import pytest

from tests.targets.ascend_llm.checkpoints import checkpoint
from tests.targets.ascend_llm.folders import TEXTS
from workbench.bundle.prompts import prompt_faults
from workbench.shipping.language_handover import MARGIN, make_golden_prompts
from workbench.targets.ascend_llm.prompted import prompted
from workbench.values.errors import ConfigError


def test_texts_that_cannot_be_shown_or_hold_one_token_are_left_out() -> None:
    model = prompted(checkpoint())
    made = make_golden_prompts(model, ["pump", "the \x1b[2J pump", "  ", *TEXTS[:1]], answer=2)
    assert [prompt.text for prompt in made.prompts] == TEXTS[:1]
    assert not list(prompt_faults(made))
    with pytest.raises(ConfigError, match="no text can be a golden prompt"):
        make_golden_prompts(model, ["pump"])


def test_prompts_are_cut_to_the_room_that_the_context_leaves_beside_an_answer() -> None:
    made = make_golden_prompts(prompted(checkpoint()), [" ".join(["pump"] * 200)], tokens=100, answer=4)
    assert len(made.prompts[0].ids) == 64 - 4
    assert len(made.prompts[0].answer) == made.tokens == 4
    with pytest.raises(ConfigError, match="leaves no room"):
        make_golden_prompts(prompted(checkpoint()), TEXTS, answer=64)


def test_one_pass_over_prompt_and_answer_sees_the_same_tokens_as_one_after_another() -> None:
    model = prompted(checkpoint(dtype="float32"))
    made = make_golden_prompts(model, TEXTS)
    assert made.largest_measured <= made.tolerance.absolute / MARGIN
    assert made.largest_measured < 1e-2 * max(step.logits[0] for prompt in made.prompts for step in prompt.steps)
