"""Experiment files: everything that can be checked is checked before any work."""

from pathlib import Path

import pytest

from tests.tiny import EXPERIMENT, write_workspace
from workbench.inputs.experiment import read_experiment, workspace_of
from workbench.values.errors import ConfigError
from workbench.values.sequential import Gate


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("workspace")
    write_workspace(root)
    whole = (root / "data" / "model.onnx").read_bytes()
    (root / "data" / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    return root


def variant(shared: Path, old: str, new: str) -> Path:
    assert old in EXPERIMENT
    path = shared / "experiments" / "variant.yaml"
    path.write_text(EXPERIMENT.replace(old, new), encoding="utf-8")
    return path


def test_a_good_file_is_read_with_absolute_paths(shared: Path) -> None:
    experiment = read_experiment(shared / "experiments" / "tiny.yaml")

    assert experiment.workspace == shared.resolve() == workspace_of(experiment.path)
    assert experiment.model.path.is_absolute()
    assert experiment.baseline.quantization.scheme == "none"
    assert [o.metric for o in experiment.objectives] == ["latency_p50_ms", "accuracy"]


def test_the_identity_ignores_budget_and_words_but_no_limit(shared: Path) -> None:
    first = read_experiment(shared / "experiments" / "tiny.yaml").identity

    assert read_experiment(variant(shared, "trials: 6", "trials: 60")).identity == first
    assert read_experiment(variant(shared, "about: does", "about: Does")).identity == first
    assert read_experiment(variant(shared, "accuracy_loss_pp: 2.0", "accuracy_loss_pp: 1.0")).identity != first


def test_a_limit_on_a_loss_may_state_its_zone_and_what_undecided_means(shared: Path) -> None:
    plain, written = "accuracy_loss_pp: 2.0", "accuracy_loss_pp: {limit: 2.0, zone: 0.2, undecided: figure}"
    first = read_experiment(shared / "experiments" / "tiny.yaml")
    found = read_experiment(variant(shared, plain, written))
    strict = read_experiment(variant(shared, plain, written.replace(", undecided: figure", "")))

    assert first.constraints[0].gate == Gate(limit=2.0, zone=1.0, undecided="figure")
    assert found.constraints[0].gate == Gate(limit=2.0, zone=0.2, undecided="figure")
    assert strict.constraints[0].gate == Gate(limit=2.0, zone=0.2, undecided="refuse")
    assert len({first.identity, found.identity, strict.identity}) == 3


def test_mistakes_are_named_with_file_and_key(shared: Path) -> None:
    for old, new, message in (
        (
            "budget: {trials: 6",
            "budget: {trails: 6",
            "variant.yaml:11: budget.trails: unknown key. Did you",
        ),
        ("trials: 6", "trials: 0", "0 is less than 1"),
        ("timeout: 1h", "timeout: soon", "'soon' is not a duration. Write a duration such as 90s"),
        ("latency_p50_ms, accuracy]", "latency_p50, accuracy]", "Did you mean 'latency_p50_ms'"),
        ("latency_p50_ms, accuracy]", "accuracy, accuracy]", "one to three different metrics"),
        ("accuracy_loss_pp: 2.0", "acuracy_loss_pp: 2.0", "Did you mean 'accuracy_loss_pp'"),
        ("accuracy_loss_pp: 2.0", "accuracy_loss_pp: much", "expected a number, got 'much'"),
        ("accuracy_loss_pp: 2.0", "accuracy_loss_pp: {limit: 2, zone: -1}", "-1 is less than 0"),
        ("accuracy_loss_pp: 2.0", "accuracy_loss_pp: {limit: 2, zones: 1}", "Did you mean 'zone'"),
        ("accuracy_loss_pp: 2.0", "size_mb: {limit: 2}", "expected a number"),
        ("samples: 32", "samples: 3200", "3200 is more than the 48 samples of the calibration split"),
        ("model: ../data/model.onnx", "model: ../data/absent.onnx", "absent.onnx does not exist"),
        ("../data/model.onnx", "../data/cut.onnx", r"cut\.onnx"),
        (
            "../data/model.onnx",
            "../.workbench/examples/loan-intent-mini/model.onnx",
            "Build it with: workbench example loan-intent-mini",
        ),
        ("dataset: ../data/manifest.yaml", "dataset: ../data/none.yaml", "none.yaml does not exist"),
        ("name: tiny", "name: a/b", "'a/b' cannot name a folder"),
        ("name: tiny", f"name: {'a' * 201}", "is no name: 1 to 200 bytes of printable characters"),
        ("name: tiny", 'name: "a\\x1b[2J"', "is no name: 1 to 200 bytes of printable characters"),
        ("version: 1", "version: 3", "3 is not supported"),
        ("about:", "target: openvino\nabout:", "openvino is not what .* is for .onnxruntime."),
        ("about:", "target: ascend\nabout:", "'ascend' is not a target that can be swept"),
        ("about:", "ascend: {soc: Ascend910B7}\nabout:", "ascend: onnxruntime has no such device"),
        ("about:", "validation: {samples: 100000}\nabout:", "validation.samples: 100000 is more than the"),
        ("about:", "holdout: {samples: 100000}\nabout:", "holdout.samples: 100000 is more than the"),
        ("about:", "validation: {samples: 10}\nabout:", "validation.samples: 10 is less than 50"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_experiment(variant(shared, old, new))


def test_words_of_before_are_read_with_a_hint(shared: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = read_experiment(
        variant(shared, "about: does", "sampler: parts\ncompile: promising\nwarm_start: none\nabout: does")
    )

    assert (found.sampler, found.compile) == ("auto", "deferred")
    former = read_experiment(variant(shared, "accuracy_loss_pp:", "accuracy_drop_pp:"))
    assert (former.constraints, former.identity) == (found.constraints, found.identity), "an old sweep goes on"
    for words in (
        "`sampler: parts` is read as `auto`",
        "`compile: promising` is read as `deferred`",
        "`warm_start`",
        "`accuracy_drop_pp` is called `accuracy_loss_pp` now",
    ):
        assert words in caplog.text


def test_candidates_may_be_scored_on_the_first_samples_of_the_shuffled_validation_split(shared: Path) -> None:
    whole = read_experiment(variant(shared, "about:", "about:"))
    part = read_experiment(variant(shared, "about:", "validation: {samples: 50}\nabout:"))

    assert part.dataset.size("validation") == 50
    assert part.dataset.validation.rows().tolist() == whole.dataset.validation.rows()[:50].tolist()
    assert part.identity != whole.identity


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("version: 1\nmodel: gone.onnx\nconstraints: {accuracy: x}\nmeasure: {calls: 2}\nsampler: none\n")

    with pytest.raises(ConfigError) as caught:
        read_experiment(path)

    keys = [line.split(": ")[1] for line in str(caught.value).splitlines()[1:]]
    assert keys == ["name", "dataset", "search_space", "model", "constraints.accuracy", "measure.calls", "sampler"]


def test_a_space_whose_defaults_make_no_float_baseline_is_refused(tmp_path: Path) -> None:
    settings = {"scheme": "static", "algorithm": "mse", "activation_symmetric": "false"}
    settings |= {"weight_granularity": "channel", "attention_matmul": "false", "keep_float": "0"}
    lines = [f"  quantization.{name}: {{choices: [{value}]}}\n" for name, value in settings.items()]
    file = write_workspace(tmp_path, space="version: 1\ntarget: onnxruntime\nparameters:\n" + "".join(lines))

    with pytest.raises(ConfigError, match="the float baseline cannot be built") as caught:
        read_experiment(file)

    assert "when:" in str(caught.value)
