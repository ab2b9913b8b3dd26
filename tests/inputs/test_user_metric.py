import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.inputs.dataset.manifests import ARRAYS
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, concatenate, per_sample, summarize
from workbench.inputs.metrics.score import Scorer
from workbench.values.errors import ConfigError, MeasureError

Score = Callable[..., Any]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Dataset]:
    def read(code: str, metric: str = "metric.py:f", manifest: str = ARRAYS, **labels: Any) -> Dataset:
        np.savez(tmp_path / "data.npz", x=np.arange(12, dtype=np.float32).reshape(6, 2), **labels)
        (tmp_path / "metric.py").write_text(textwrap.dedent(code))
        (tmp_path / "manifest.yaml").write_text(f"{manifest}metric: {metric}\n")
        return read_manifest(tmp_path / "manifest.yaml")

    return read


def scored(dataset: Dataset, scorer: Scorer | None = None, offset: float = 0.0) -> MeasuredOutcomes:
    """Of a model that answers with its input, give or take."""
    scorer = scorer or scorer_of(dataset, None)
    parts = []
    for batch in dataset.batches("validation", 4):
        found = scorer.score({"y": batch.feeds["x"] + offset}, batch, {"y": batch.feeds["x"]})
        parts.append(found)
    return concatenate(parts)


def test_a_metric_sees_outputs_and_targets_of_its_samples_and_is_kept_for_each(read: Callable[..., Dataset]) -> None:
    dataset = read(
        """
        import numpy as np
        def f(outputs, targets):
            assert all(isinstance(text, str) for text in targets), targets
            lengths = np.array([len(text) for text in targets])
            return {"close": (outputs["y"][:, 0] / 10, lengths), "words": lengths}
        """,
        "{function: metric.py:f, bounds: {words: [0, null]}, higher_is_better: {words: false}, unit: {words: letters}}",
        labels=np.array(["a", "bb", "ccc", "dddd", "eeeee", "ffffff"]),
    )

    outcomes = scored(dataset)

    assert summarize(outcomes) == {"close": pytest.approx((0 + 2 + 4 + 6 + 8 + 10) / 10 / 21), "words": 3.5}
    assert outcomes.units.tolist() == ["", "letters"]
    assert outcomes.higher.tolist() == [True, False]
    paired = per_sample(outcomes)
    assert paired.bounds == (0.0, 1.0)


def test_the_float_models_outputs_come_when_the_function_names_them(read: Callable[..., Dataset]) -> None:
    dataset = read(
        """
        import numpy as np
        def f(outputs, *, reference, inputs, info, options):
            assert set(info) == {"indices", "lengths", "labels"}
            assert (reference["y"] == inputs["x"]).all()
            return np.abs(outputs["y"] - reference["y"]).max(axis=1) * options["scale"]
        """,
        "{function: metric.py:f, higher_is_better: false, bounds: [0, null], unit: mm, options: {scale: 10}}",
    )
    scorer = scorer_of(dataset, None)

    assert scorer.needs_reference
    assert summarize(scored(dataset, scorer, offset=0.5)) == {"f": 5.0}
    assert (scorer.primary, scorer.unit, scorer.higher) == ("f", "mm", False)


@pytest.mark.filterwarnings("ignore")
def test_a_metric_that_cannot_be_used_says_why(read: Callable[..., Dataset]) -> None:
    for code, message in (
        ("def f(output): return 1", "a parameter 'output', which a metric is not given. Did you mean 'outputs'"),
        ("def f(): return 1", "f() has no parameter 'outputs'. Write def f(outputs, targets)"),
        ("def f(outputs): return 0.5", "gave float64 [] as f of 6 samples. Give one number for each sample"),
        ("def f(outputs): return [0.5, 'x']", "as f of 6 samples"),
        ("def f(outputs): return {}", "f() returned no scores"),
        ("def f(outputs): return outputs['y'][:, 0] * 100", "f is 200 for sample 1, outside of 0 to 1. Declare"),
        ("def f(outputs): return outputs['y'][:, 0] / 0", "f is nan for sample 0. Give a number"),
        (
            "def f(outputs):\n    return outputs['z']",
            "metric.py:2: failed for samples 0, 1, 2, 3, …: KeyError: 'z' (in f).",
        ),
        ("import numpy as np\ndef g(outputs): return 1", "has no function 'f'. Valid names: g."),
    ):
        dataset = read(code)

        batch = next(dataset.validation.source.read([np.arange(6)]))

        with pytest.raises(ConfigError) as caught:
            scorer_of(dataset, None).score({"y": batch.feeds["x"]}, batch, None)

        assert message in str(caught.value)


def test_what_a_proven_metric_cannot_score_is_the_candidates_fault(read: Callable[..., Dataset]) -> None:
    dataset = read("def f(outputs):\n    return [{False: 1.0}[bool(y[0] > 1e6)] for y in outputs['y']]")
    scorer = scorer_of(dataset, None)
    assert summarize(scored(dataset, scorer)) == {"f": 1.0}

    with pytest.raises(MeasureError, match=r"the metric .*metric.py:2: failed for samples .*KeyError: True \(in <list"):
        scored(dataset, scorer, offset=1e7)
    with pytest.raises(MeasureError, match=r"f is nan for sample .* The output 'y' holds NaN"):
        scored(read("def f(outputs): return outputs['y'][:, 0] / 100"), offset=float("nan"))


def test_source_and_declaration_are_part_of_what_results_are_kept_for(read: Callable[..., Dataset]) -> None:
    code = "def f(outputs): return outputs['y'][:, 0]"
    first = read(code)
    others = [read(code + " "), read(code, "{function: metric.py:f, bounds: [0, 2]}")]

    assert len({each.identity for each in (first, *others)}) == 3
    assert len({str(scorer_of(each, None).identity) for each in (first, *others)}) == 3
    assert read(code).identity == first.identity


def test_what_the_key_may_say(read: Callable[..., Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
    for metric, message in (
        ("wer", "'wer' is not file.py:function"),
        ("other.py:f", "other.py does not exist"),
        ("{function: metric.py:f, bounds: [1, 0]}", "metric.bounds: expected two numbers, the smaller first"),
        ("{function: metric.py:f, highre: true}", "metric.highre: unknown key"),
        ("{name: wre}", "metric.name: 'wre' is no metric of a library. Did you mean 'wer'"),
        ("{name: roc_auc}", "is one number of a whole set: it has no score per sample"),
        ("{name: wer}", "needs jiwer, not installed here. pip install jiwer"),
        ("3", "metric: expected file.py:function or a mapping"),
    ):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # whatever is installed here

        with pytest.raises(ConfigError) as caught:
            read("def f(outputs): return 1", metric)

        assert message in str(caught.value)
