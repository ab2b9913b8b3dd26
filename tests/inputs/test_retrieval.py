"""`retrieval:` of a manifest: what is read, what is refused, and what a search by it scores."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from tests.retrievals import write_retrieval
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.inputs.experiment import read_experiment
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.outcomes import per_sample, summarize
from workbench.inputs.metrics.retrieval_scorer import Side
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.significance import compare

QRELS = "query-id\tcorpus-id\tscore\n" + "".join(f"q{q}\td{q % 60}\t2\nq{q}\td{(q + 7) % 60}\t1\n" for q in range(240))


def dataset_of(root: Path, said: str, **files: str) -> Dataset:
    write_retrieval(root, said, **files)
    return read_manifest(root / "calibration" / "tiny-texts.yaml")


def words_of(feeds, noise=0.0, rows=12):
    """An embedding: how often each word occurs, and noise that depends on the text alone."""
    ids, mask = feeds["input_ids"], feeds["attention_mask"]
    found = np.zeros((len(ids), rows), dtype=np.float32)
    for row, (own, valid) in enumerate(zip(ids, mask, strict=True)):
        np.add.at(found[row], own[valid == 1], 1)
        found[row] += noise * np.random.default_rng([int(i) for i in own[valid == 1]]).standard_normal(rows)
    return {"logits": found}


def scored(data: Dataset, tmp_path: Path, own=words_of, exact=words_of):
    sides = [Side(run=run, corpus=data.retrieval.corpus, batch=8) for run in (exact, own)]
    if own is exact:
        sides[1] = sides[0]
    scorer = scorer_of(data, None)

    def keep(build):
        folder = tmp_path / "index"
        folder.mkdir(exist_ok=True)
        build(folder)
        return folder

    scorer.search(sides[1], sides[0], data.validation.source, keep)
    return scorer.score_all((own(b.feeds), b, exact(b.feeds)) for b in data.batches("validation", 16))


def test_every_relevance_scores_queries_one_by_one_in_pairs(tmp_path):
    noisy = functools.partial(words_of, noise=1.0)
    for number, said in enumerate(("label", "float", "../data/qrels.tsv")):
        data = dataset_of(tmp_path / str(number), f"  relevance: {said}\n", qrels_tsv=QRELS)
        exact, found = scored(data, tmp_path), scored(data, tmp_path, own=noisy)
        values, worse = summarize(exact), summarize(found)
        assert next(iter(values)) == "recall_at_5"
        assert values["flips_at_5"] == values["float_index.flips_at_5"] == 0
        assert values["rank_agreement"] == 1
        if said == "float":
            assert values["recall_at_5"] == values["ndcg_at_5"] == values["mrr_at_5"] == 1
        assert worse["flips_at_5"] > 0.1 < worse["float_index.flips_at_5"]
        assert worse["flips_at_5"] != worse["float_index.flips_at_5"]  # two questions
        assert worse["rank_agreement"] < 1
        drop = compare(per_sample(exact), per_sample(found)).drop_pp
        expected = 100 * (values["recall_at_5"] - worse["recall_at_5"])
        assert drop.value == pytest.approx(expected)
        assert drop.low < drop.value < drop.high
        assert len(found.numerators) == 240


def test_a_query_among_the_documents_does_not_find_itself(tmp_path):
    write_retrieval(tmp_path, "  relevance: label\n")
    manifest = tmp_path / "calibration" / "tiny-texts.yaml"
    manifest.write_text(manifest.read_text().replace("corpus.csv", "validation.csv").replace(", id: id}", "}"))
    own = read_manifest(manifest)
    itself = scored(own, tmp_path)  # each with the documents of its label
    kinds = np.array(own.retrieval.kinds)
    texts, source = own.retrieval.corpus.texts, own.validation.source
    vectors = np.concatenate([words_of(b.feeds)["logits"] for b in source.read([np.arange(240)])]).astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    hits = []
    for row in own.validation.rows():
        scores = (unit[row] @ unit.T).astype(np.float32)
        scores[row] = -np.inf
        order = np.argsort(-scores, kind="stable")[:5]
        hits.append((kinds[order] == kinds[row]).mean())
    assert len(texts) == 240
    assert summarize(itself)["recall_at_5"] == pytest.approx(np.mean(hits))


def test_pooling_looks_at_what_is_no_padding(tmp_path):
    data = dataset_of(tmp_path, "  relevance: float\n  pooling: mean\n")

    def tokens(feeds):
        ids, mask = feeds["input_ids"], feeds["attention_mask"]
        found = np.eye(12, dtype=np.float32)[ids]
        found[mask == 0] = 1e6  # whatever padding holds
        return {"logits": found}

    def whole(feeds):
        counts = words_of(feeds)["logits"]
        return {"logits": counts / counts.sum(axis=1, keepdims=True)}

    by_token = scored(data, tmp_path, own=tokens, exact=tokens)
    plain = dataset_of(tmp_path / "plain", "  relevance: float\n")
    assert summarize(by_token) == summarize(scored(plain, tmp_path / "plain", own=whole, exact=whole))


def test_an_embedding_that_is_no_number_or_of_another_shape_is_named(tmp_path):
    data = dataset_of(tmp_path, "  relevance: float\n")

    def broken(feeds):
        found = words_of(feeds)
        found["logits"][0, 0] = np.nan
        return found

    with pytest.raises(MeasureError, match=r"the embedding of document 'd\d+' holds NaN or infinity"):
        scored(data, tmp_path, own=broken)
    with pytest.raises(ConfigError, match=r"none reads an output of 2 axes.*pooling: mean") as error:
        scored(data, tmp_path, exact=lambda feeds: {"logits": np.zeros((*feeds["input_ids"].shape, 3))})
    assert error.value.key == "retrieval.pooling"


@pytest.mark.parametrize(
    ("said", "files", "expected"),
    [
        ("  relevance: ../data/qrels.tsv\n", {"qrels_tsv": QRELS + "q1\td99\t1\n"}, r"qrels\.tsv:482.*'d99'"),
        ("  relevance: ../data/qrels.tsv\n", {"qrels_tsv": QRELS + "q1\td1\t1\n"}, r":482.*'d1' stands twice"),
        ("  relevance: ../data/qrels.tsv\n", {"qrels_tsv": QRELS.replace("q3\t", "x\t")}, r"validation\.csv:5.*'q3'"),
        ("  relevance: ../data/qrels.tsv\n", {"qrels_tsv": QRELS + "q1\td2\tgood\n"}, r":482.*a number, got 'good'"),
        ("  relevance: ../data/qrels.txt\n", {"qrels_txt": "q1 0 d1\n"}, r"qrels\.txt:1.*3 fields"),
        ("  relevance: float\n", {"corpus_csv": "id,text\n"}, r"corpus\.csv.*has no documents"),
        ("  relevance: float\n", {"corpus_csv": "id,text\na,loan\na,rate\n"}, r"corpus\.csv:3.*'a' stands twice"),
        ("  relevance: float\n", {"corpus_csv": "id,text\na,loan\n"}, r"retrieval\.k.*5 is more than the 1 documents"),
        ("  relevance: float\n", {"corpus_csv": "id,body\na,loan\n"}, r"corpus\.csv:1.*no column 'text'"),
        ("  relevance: label\n", {"corpus_csv": "text,label\n" + "loan,ask\n" * 6}, r"has this query's label, '"),
        ("  relevance: float\n  pooling: max\n", {}, r"retrieval\.pooling.*'max' is not allowed"),
        ("  relevance: float\nmetric: {name: wer}\n", {}, r"metric.*means nothing beside retrieval"),
        ("  relevance: label\n  candidates: ../data/c.tsv\n", {"c_tsv": QRELS}, r"label needs none"),
        (
            "  relevance: float\n  candidates: ../data/c.tsv\n",
            {"c_tsv": QRELS},
            r"5 is more than the 2 candidates",
        ),
    ],
)
def test_bad_input_gets_one_sentence_with_its_place(tmp_path, said, files, expected):
    with pytest.raises(ConfigError, match=expected) as error:
        dataset_of(tmp_path, said, **files)
    assert "\n" not in error.value.rule


def test_documents_are_read_from_lines_and_json_too(tmp_path):
    documents = ["loan", "rate late", "repay", "card", "bank sum"]
    written = {
        "corpus_txt": "\n".join(documents) + "\n\n",
        "corpus_jsonl": "".join(json.dumps({"_id": n + 1, "body": t}) + "\n" for n, t in enumerate(documents)),
        "corpus_tsv": "_id\tbody\n" + "".join(f"{n + 1}\t{t}\n" for n, t in enumerate(documents)),
    }
    manifest = tmp_path / "calibration" / "tiny-texts.yaml"
    for name, text in written.items():
        columns = "" if name == "corpus_txt" else "  columns: {id: _id, text: body}\n"
        write_retrieval(tmp_path, f"  relevance: float\n{columns}", **{name: text})
        manifest.write_text(manifest.read_text().replace("corpus.csv", name.replace("_", ".")))
        corpus = read_manifest(manifest).retrieval.corpus
        assert list(corpus.texts) == documents
        assert corpus.labels == ("1", "2", "3", "4", "5")


def pair_scores(feeds, noise=0.0):
    """How many words the two texts of a pair share."""
    found = []
    for ids, types, mask in zip(feeds["input_ids"], feeds["token_type_ids"], feeds["attention_mask"], strict=True):
        first, second = (set(ids[(types == part) & (mask == 1)].tolist()) for part in (0, 1))
        shift = noise * np.random.default_rng([int(i) for i in ids[mask == 1]]).standard_normal()
        found.append([len(first & second) + shift])
    return {"logits": np.array(found, dtype=np.float32)}


def test_a_cross_encoder_puts_the_candidates_of_each_query_in_order(tmp_path):
    listed = "query-id\tcorpus-id\n" + "".join(f"q{q}\td{(q + 7 * n) % 60}\n" for q in range(240) for n in range(8))
    said = "  relevance: ../data/qrels.tsv\n  candidates: ../data/c.tsv\n"
    data = dataset_of(tmp_path, said, c_tsv=listed, qrels_tsv=QRELS)
    fed = next(data.batches("validation", 4)).feeds
    assert (fed["token_type_ids"] == 1).any()  # pairs, as the model is fed in production
    assert data.texts("validation") is None
    exact = scored(data, tmp_path, own=pair_scores, exact=pair_scores)
    worse = scored(data, tmp_path, own=functools.partial(pair_scores, noise=2.0), exact=pair_scores)
    assert len(exact.numerators) == 240
    before, after = summarize(exact), summarize(worse)
    assert not any(name.startswith("float_index") for name in before)
    assert before["flips_at_5"] == 0 < after["flips_at_5"]
    row = int(data.validation.rows()[0])
    texts, documents = data.validation.source.texts[row].first.split(), data.retrieval.corpus.texts
    candidates = [(row + 7 * n) % 60 for n in range(8)]
    order = sorted(candidates, key=lambda d: (-len(set(texts) & set(documents[d].split())), d))[:5]
    relevant = {row % 60, (row + 7) % 60}
    assert exact.numerators[0, 0] == pytest.approx(len(relevant & set(order)) / 2)


def test_a_limit_on_an_index_that_is_not_there_is_refused(tmp_path):
    experiment = write_retrieval(tmp_path)
    text = experiment.read_text().replace("{accuracy_loss_pp: 5.0}", "{accuracy_loss_pp_float_index: 1.0}")
    experiment.write_text(text)
    assert read_experiment(experiment).constraints[0].limit == 1
    manifest = tmp_path / "calibration" / "tiny-texts.yaml"
    manifest.write_text(manifest.read_text().split("retrieval:")[0].replace(", label: label, id: id", ""))
    with pytest.raises(ConfigError, match="no index is searched"):
        read_experiment(experiment)
