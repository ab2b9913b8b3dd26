"""From a dataset's samples to a server's requests, and a server's answers to samples.

model = served_model(url, name, version)
samples = samples_of(dataset, "validation", model, batch=1)
requests = requests_of(model, samples)
outputs = ask(model, next(samples))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.inputs.answers import sample_digests, text_digest
from workbench.inputs.dataset import Dataset
from workbench.load.kserve.served import ServedModel, feeds_for, http_ask, infer_request, texts_for
from workbench.load.requests import MOST_BODIES, Request, texts_of_length
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import Split
from workbench.values.preprocess import Array, Preprocessor, Text, collate, encode

MOST_REQUEST_BYTES = 256 << 20
"""Of all requests of a run together; further samples are not sent."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """The samples of one request.

    Attributes:
        feeds: the server's inputs.
        digests, rows: of each sample, as `workbench.inputs.answers` has them; no rows where texts were made up.
    """

    feeds: Mapping[str, Array]
    digests: tuple[str, ...]
    rows: tuple[int, ...] = ()


def samples_of(
    dataset: Dataset,
    split: Split,
    model: ServedModel,
    *,
    batch: int = 1,
    length: int | None = None,
    most: int = MOST_BODIES,
    last: bool = False,
    texts: Sequence[Text] | None = None,
) -> Iterator[Asked]:
    """The first samples of a split's order, as the server takes them; texts are tokenized by the dataset's tokenizer,
    cut and padded to the server's own length where it has one.

    Args:
        length: tokens of every sample; made of the split's texts.
        most: samples.
        last: give the last request too when it has fewer samples than `batch`.
        texts: instead of the split's.

    Raises:
        ConfigError: the data do not fit the server, or a length is asked of data that are no texts.
    """
    if dataset.interface.state:
        raise ConfigError("carries a state from request to request, which is not sent.", file=dataset.path, key="state")
    own = dataset.texts(split)
    count = min(most, dataset.size(split))
    if own is None or dataset.preprocessor is None:
        if length is not None or texts is not None:
            raise ConfigError("is for texts; these data are arrays.", file=dataset.path, key="--length, --data")
        for found in dataset.batches(split, batch, stop=count):
            if len(found) == batch or last:
                rows = tuple(int(row) for row in found.indices)
                yield Asked(
                    feeds=feeds_for(model, found.feeds), digests=sample_digests(dataset, split, found), rows=rows
                )
        return
    rows = () if texts is not None else tuple(int(row) for row in dataset.split(split).rows()[:count])
    chosen = list(texts[:most]) if texts is not None else [own[row] for row in rows]
    if length is not None:
        chosen, rows = texts_of_length(dataset.preprocessor, chosen, length, count), ()
    for start in range(0, len(chosen), batch):
        group = tuple(chosen[start : start + batch])
        if len(group) < batch and not last:
            return
        yield Asked(
            feeds=_text_feeds(model, dataset.preprocessor, group),
            digests=tuple(text_digest(text) for text in group),
            rows=rows[start : start + batch],
        )


def _text_feeds(model: ServedModel, preprocessor: Preprocessor, texts: tuple[Text, ...]) -> dict[str, Array]:
    if model.takes_texts:
        return texts_for(model, texts)
    width = model.width
    if width is not None:
        preprocessor = replace(preprocessor, max_length=min(preprocessor.max_length, width), bins=(width,))
    encoded = encode(preprocessor, texts)
    longest = max(len(one.ids) for one in encoded)
    return feeds_for(model, collate(preprocessor, encoded, width if width is not None else longest))


def requests_of(model: ServedModel, samples: Iterable[Asked]) -> list[Request]:
    """Requests within `MOST_REQUEST_BYTES` together.

    Raises:
        ConfigError: no whole request could be made.
    """
    found: list[Request] = []
    size = 0
    for asked in samples:
        request = infer_request(asked.feeds, model)
        size += len(request.body)
        if found and size > MOST_REQUEST_BYTES:
            break
        found.append(request)
    if not found:
        raise ConfigError("the data have fewer samples than one request takes.", key="--batch")
    return found


def ask(model: ServedModel, asked: Asked) -> dict[str, Array]:
    """The outputs of one request by our names, [samples, …].

    Raises:
        MeasureError: no answer, an error with the server's words, or outputs that have not one row a sample.
    """
    outputs, rows = http_ask(model, infer_request(asked.feeds, model)), len(asked.digests)
    for name, array in outputs.items():
        if array.ndim < 1 or len(array) != rows:
            raise MeasureError(f"output {name!r} of {model} has the shape {list(array.shape)} for {rows} samples.")
    if not outputs:
        raise MeasureError(f"{model} answers with no numbers.")
    return {model.our_name(name): np.array(array) for name, array in outputs.items()}
