"""A corpus among the data: the manifest that `init` writes for it reads, and says which documents are right."""

import functools
import json
from pathlib import Path

from tests.commands.init.making import refused, start, write_text_model
from tests.retrievals import write_retrieval
from tests.word_pieces import write_tokenizer
from workbench.inputs.experiment import Experiment


def asked(root: Path, *more: str, name: str = "e", model: str = "model.onnx") -> Experiment:
    names = ("calibration.csv", "validation.csv", "holdout.csv", *more)
    return start(root / "data", *names, model=root / "data" / model, labels=None, name=name, tokenizer=None)


def test_what_is_right_is_the_label_the_judgements_or_the_float_models_order(tmp_path: Path) -> None:
    write_retrieval(tmp_path)
    data = tmp_path / "data"
    (data / "passages.txt").write_text("\n".join(["loan rate", "repay", "card"] * 4))
    (data / "docs.jsonl").write_text(
        "".join(json.dumps({"_id": f"x {n}", "content": "loan"}) + "\n" for n in range(12))
    )
    judged = "".join(f"q{q}\tx {q % 12}\t1\n" for q in range(240))
    (data / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    labelled = asked(tmp_path, "corpus.csv", name="a").dataset.retrieval
    assert labelled is not None
    assert (labelled.relevance, labelled.output, labelled.pooling, labelled.k) == ("label", "logits", "none", 10)
    plain = asked(tmp_path, "passages.txt", name="b")
    assert plain.dataset.retrieval is not None
    assert plain.dataset.retrieval.relevance == "float"
    found = asked(tmp_path, "docs.jsonl", "qrels.tsv", name="c")
    assert found.dataset.retrieval is not None
    assert found.dataset.retrieval.relevance == "qrels"
    assert found.dataset.retrieval.corpus.labels is not None
    assert found.dataset.retrieval.corpus.labels[1] == "x 1"
    assert "accuracy: recall_at_10 of the documents of docs.jsonl" in found.path.read_text()
    assert found.constraints[0].metric == "accuracy_loss_pp"


def test_pooling_is_the_checkpoints_and_candidates_make_a_cross_encoder(tmp_path: Path) -> None:
    write_retrieval(tmp_path)
    data = tmp_path / "data"
    write_tokenizer(data / "tokenizer.json")
    write_text_model(data / "tokens.onnx", ner=True, classes=8)
    usual = asked(tmp_path, "corpus.csv", name="a", model="tokens.onnx").dataset.retrieval
    (data / "1_Pooling").mkdir()
    (data / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    declared = asked(tmp_path, "corpus.csv", name="b", model="tokens.onnx").dataset.retrieval
    assert usual is not None
    assert declared is not None
    assert (usual.pooling, declared.pooling) == ("mean", "cls")
    listed = "".join(f"q{q}\td{(q + n) % 60}\n" for q in range(240) for n in range(12))
    (data / "candidates.tsv").write_text("query-id\tcorpus-id\n" + listed)
    ranked = asked(tmp_path, "corpus.csv", "candidates.tsv", name="c", model="tokens.onnx").dataset.retrieval
    assert ranked is not None
    assert (ranked.relevance, len(ranked.candidates)) == ("float", 240)


def test_what_init_cannot_search_is_said(tmp_path: Path) -> None:
    write_retrieval(tmp_path)
    data, names = tmp_path / "data", ("calibration.csv", "validation.csv")
    (data / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n")
    (data / "docs.csv").write_text("number,body\n1,loan\n")
    ask = functools.partial(refused, data, *names, labels=None)
    assert "qrels.tsv without documents" in ask("qrels.tsv")
    assert "none of its columns (number, body) is known to hold the text" in ask("docs.csv")
    assert "a corpus decides what accuracy is" in ask("corpus.csv", outputs={"logits": "embedding"})
    for split in names:
        (data / split).write_text((data / split).read_text().replace("id,", "key,", 1))
    assert "queries have no id among their columns (key, text, label)" in ask("corpus.csv", "qrels.tsv")
