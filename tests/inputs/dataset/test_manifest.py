from collections.abc import Callable
from pathlib import Path

from tests.inputs.dataset.manifests import BERT, NER, TEXT, refused
from workbench.inputs.dataset import Dataset


def test_a_wrong_manifest_is_refused_with_file_and_key(read: Callable[..., Dataset]) -> None:
    for old, new, message in (
        ("labels:", "lables:", "manifest.yaml:5: lables: unknown key. Did you mean 'labels'"),
        ("validation.csv", "none.csv", "manifest.yaml:4: files.validation: "),
        ("calibration.csv", "tokenizer.json", "files.calibration: tokenizer.json is of no known kind. Use .csv"),
        ("calibration.csv", ".", "manifest.yaml:4: files.calibration: "),
        ("calibration.csv", "data.npz", "files: splits are of different kinds"),
        ("classification", "clasification", "task: 'clasification' is not allowed. Did you mean 'classification'"),
        ("max_length: 32", "max_length: 32\nbins: [16]", "bins: no bin holds a text of max_length 32"),
        ("max_length: 32", "max_length: 32\ninputs: {ids: idz}", "inputs.ids: 'idz' is not allowed."),
        ("max_length: 32", "max_length: 32\ncolumns: {texts: a}", "columns.texts: unknown key. Did you mean 'text'"),
        ("max_length: 32\n", "", "max_length: missing."),
        ("max_length: 32", "max_length: 32\nsplit: {holdout_fraction: 0.001}", "leaves a split empty"),
        ("max_length: 32", "max_length: 32\nloader: load.py", "loader: 'load.py' is not file.py:function"),
        ("max_length: 32", "max_length: 32\nloader: load.py:f", "load.py does not exist"),
        (
            "validation.csv}",
            "validation.csv, holdout: validation.csv}\nsplit: {holdout_fraction: 0.5}",
            "means nothing beside files.holdout",
        ),
    ):
        assert message in refused(read, TEXT.replace(old, new), BERT)


def test_a_wrong_label_file_is_refused(read: Callable[..., Dataset], folder: Path) -> None:
    for manifest, file, content, message in (
        (TEXT, "labels.json", '["loan", "loan"]', "label 'loan' stands twice"),
        (TEXT, "labels.json", '{"loan": 0, "payment": 2}', "every index from 0 once"),
        (TEXT, "labels.json", "[]", "expected a list of names"),
        (TEXT, "labels.json", "[1, 2]", "expected a list of names"),
        (TEXT, "labels.json", '["loan"', "not valid JSON"),
        (NER, "tags.json", '["O", "S-SUM"]', "'S-SUM' is not a BIO tag. Write O, B-TYPE and I-TYPE."),
    ):
        (folder / file).write_text(content)

        found = refused(read, manifest)

        assert f"{file}:" in found
        assert message in found
