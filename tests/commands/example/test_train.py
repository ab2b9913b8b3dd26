import pytest
import torch

from workbench.commands.example.train import IGNORED, Preset, Sample, Schedule, _new_model, _tensors, train

TINY = Preset(layers=2, hidden_size=64, heads=2, intermediate_size=64)


def test_first_heads_look_one_character_ahead_and_one_back() -> None:
    model = _new_model("ner", Preset(layers=1, hidden_size=256, heads=4, intermediate_size=64), ["O", "B-X"], 50)
    positions = model.base_model.embeddings.position_embeddings.weight[:40]
    attention = model.base_model.encoder.layer[0].attention.self

    def peaks(head: int) -> list[int]:
        rows = slice(64 * head, 64 * head + 64)
        scores = (positions @ attention.query.weight[rows].T) @ (positions @ attention.key.weight[rows].T).T
        return [int(j) - i for i, j in enumerate(scores.argmax(-1)) if 2 <= i < 38]

    assert [set(peaks(head)) for head in range(4)] == [{1}, {-1}, {2}, {-2}]


def test_a_cut_text_keeps_its_end_mark_and_padding_has_no_target() -> None:
    long = Sample(ids=(2, 10, 11, 12, 13, 3), target=(IGNORED, 1, 2, 3, 4, IGNORED))
    short = Sample(ids=(2, 10, 3), target=(IGNORED, 1, IGNORED))

    tensors = _tensors([long, short], max_length=4)

    assert tensors["input_ids"].tolist() == [[2, 10, 11, 3], [2, 10, 3, 0]]
    assert tensors["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert tensors["labels"].tolist() == [[IGNORED, 1, 2, IGNORED], [IGNORED, 1, IGNORED, IGNORED]]


@pytest.mark.parametrize("seeds", [(0, 0), (0, 1)], ids=["same", "other"])
def test_weights_follow_from_the_seed_alone(seeds: tuple[int, int]) -> None:
    samples = [Sample(ids=(2, 5 + i % 3, 3), target=i % 3) for i in range(24)]

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(123)  # the caller's own state must not matter, nor be touched
        trained = train(
            task="classification",
            preset=TINY,
            schedule=Schedule(epochs=1, batch=8, max_length=8, learning_rate=1e-3),
            samples=samples,
            labels=["a", "b", "c"],
            vocabulary_size=10,
            seed=seed,
            report=lambda _line: None,
        )
        assert torch.initial_seed() == 123
        return torch.cat([p.detach().flatten() for p in trained.model.parameters()])

    ours, theirs = (weights(seed) for seed in seeds)

    assert torch.equal(ours, theirs) == (seeds[0] == seeds[1])
