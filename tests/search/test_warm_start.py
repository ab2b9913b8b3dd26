"""What earlier sweeps of a workspace tell a new one: expectations and first proposals, and never a measurement."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.sweeping import Recorder
from tests.tiny import EXPERIMENT, bench_of, write_workspace
from workbench.evaluation.journal_entries import entry_ids
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.earlier import Subject, alike
from workbench.search.sweep import run_sweep
from workbench.search.warm_start import expected, fixed, priors, warm_words
from workbench.values.errors import ConfigError


def named(root: Path, name: str, more: str = "") -> Experiment:
    """An experiment of the tiny workspace under another name."""
    file = root / "experiments" / f"{name}.yaml"
    file.write_text(EXPERIMENT.replace("name: tiny", f"name: {name}") + more, encoding="utf-8")
    return read_experiment(file)


@pytest.fixture
def swept(tmp_path: Path, warm_store: Path) -> Path:
    """A workspace with one sweep of six candidates."""
    question = read_experiment(write_workspace(tmp_path))
    run_sweep(question, bench_of(question, warm_store))
    return tmp_path


def test_a_sweep_begins_with_what_was_on_the_front_of_an_earlier_one_and_measures_it_itself(
    swept: Path, warm_store: Path
) -> None:
    question = named(swept, "next", "sampler: parts\n")
    bench, recorder = bench_of(question, warm_store), Recorder()
    said = warm_words(question, expected(question, bench))

    end = run_sweep(question, bench, trials=5, listeners=(recorder,))

    assert said[0].startswith("6 candidates of tiny 0001 say what to expect (the same model, the same machine")
    assert "count as no measurement" in said[-1]
    assert (end.new, end.reused) == (5, 0)
    assert all(e.measurement.latency is not None for e, _ in recorder.seen if e.status == "complete")
    (source,) = fixed(question, bench).sources
    study = (bench.journal.root / "study.log").read_text(encoding="utf-8")
    assert source.first == () or "was on the front of tiny 0001" in study
    told = priors(question, fixed(question, bench), bench.journal.evaluations())
    assert len(told[0].seen) == 6
    float_ms = bench.journal.evaluations()[question.baseline.id].measurement.latency
    mine = next(s for s in told[0].seen if s.assignment == question.baseline_assignment)
    assert mine.numbers["latency_p50_ms"] == pytest.approx(float_ms.p50_ms.value / float_ms.drift), "a ratio of 1"


def test_what_is_expected_is_fixed_at_the_first_run(swept: Path, warm_store: Path) -> None:
    question = named(swept, "next")
    bench = bench_of(question, warm_store)
    before = fixed(question, bench)
    later = named(swept, "later", "warm_start: none\n")
    run_sweep(later, bench_of(later, warm_store), trials=3)

    assert fixed(question, bench) == before
    assert fixed(later, bench_of(later, warm_store)).sources == ()

    (bench.journal.root / "warm_start.json").write_text("{}", encoding="utf-8")
    assert fixed(question, bench).sources == (), "damaged: the sweep goes on without"


def test_damaged_and_foreign_sweeps_are_skipped_with_a_word(swept: Path, warm_store: Path) -> None:
    folder = swept / ".workbench" / "sweeps"
    (folder / "foreign" / "0001" / "evaluations").mkdir(parents=True)
    (folder / "foreign" / "0001" / "evaluations" / "abc.json").write_bytes(b"\0\1 no json")
    (folder / "empty" / "0007" / "logs").mkdir(parents=True)
    victim = folder / "tiny" / "0001"
    (victim / "subject.json").unlink()
    torn = victim / "evaluations" / f"{entry_ids(victim, 'validation')[-1]}.json"
    torn.write_bytes(torn.read_bytes()[:100])
    question = named(swept, "next")

    said = "\n".join(warm_words(question, expected(question, bench_of(question, warm_store))))

    assert "foreign 0001 is left out: none of its 1 evaluations can be read" in said
    assert "empty 0007 is left out: it measured nothing" in said
    assert "tiny 0001" in said


def test_only_named_sweeps_and_none_at_all(swept: Path, warm_store: Path) -> None:
    one, none = named(swept, "one", "warm_start: tiny\n"), named(swept, "none", "warm_start: none\n")

    assert len(expected(one, bench_of(one, warm_store)).sources) == 1
    assert warm_words(none, expected(none, bench_of(none, warm_store))) == []
    missing = named(swept, "missing", "warm_start: [absent]\n")
    bench = bench_of(missing, warm_store)
    with pytest.raises(ConfigError, match="no earlier sweep of 'absent'"):
        expected(missing, bench)
    with pytest.raises(ConfigError, match="names no sweep"):
        named(swept, "wrong", "warm_start: 3\n")


def test_an_empty_workspace_and_a_sweep_of_the_baseline_alone_tell_nothing(tmp_path: Path, warm_store: Path) -> None:
    question = read_experiment(write_workspace(tmp_path))
    assert warm_words(question, fixed(question, bench_of(question, warm_store))) == []
    run_sweep(question, bench_of(question, warm_store), trials=1)
    after = named(tmp_path, "after")

    (said,) = warm_words(after, expected(after, bench_of(after, warm_store)))

    assert said == "tiny 0001 is left out: it measured its float baseline alone"


def test_models_are_as_alike_as_their_operators() -> None:
    bert = Subject(model="a", form="f", operators={"MatMul": 32, "Add": 40, "Softmax": 4})
    longer = replace(bert, model="b", form="g", operators={name: 3 * n for name, n in bert.operators.items()})
    convolutions = replace(bert, model="c", form="h", operators={"Conv": 50, "Relu": 48, "Add": 16})

    weights = [alike(bert, there, same_question=False)[0] for there in (bert, replace(bert, model="d"), longer)]
    assert weights == [1.0, 0.9, 0.35]
    assert alike(bert, convolutions, same_question=False)[0] < 0.15
    assert alike(bert, None, same_question=False)[0] < alike(bert, None, same_question=True)[0] == 1.0


# --- what it is worth: made-up tables of 256 candidates --------------------------------------------------------------
