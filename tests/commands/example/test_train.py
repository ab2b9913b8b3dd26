import pytest
import torch

from workbench.commands.example.train import Preset, Sample, Schedule, train

TINY = Preset(layers=2, hidden_size=64, heads=2, intermediate_size=64)


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
