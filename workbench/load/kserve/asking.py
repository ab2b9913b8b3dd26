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
from workbench.load.http1 import body_words, exchange
from workbench.load.kserve.served import (
    BYTES,
    HEADER_LENGTH,
    ServedModel,
    feeds_for,
    infer_request,
    outputs_of,
    path_of,
    texts_for,
)
from workbench.load.requests import MOST_BODIES, Request, texts_of_length
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.measurement import Split
from workbench.values.preprocess import Array, Text, collate, encode

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
    # the length that the server pads every sequence to; any where it does not say one
    sizes = {tensor.shape[1] for tensor in model.inputs if len(tensor.shape) == 2 and tensor.datatype != BYTES}
    width, preprocessor = next(iter(sizes)) if len(sizes) == 1 and min(sizes) > 0 else None, dataset.preprocessor
    if width is not None:
        preprocessor = replace(preprocessor, max_length=min(preprocessor.max_length, width), bins=(width,))
    for start in range(0, len(chosen), batch):
        group = tuple(chosen[start : start + batch])
        if len(group) < batch and not last:
            return
        if len(model.inputs) == 1 and model.inputs[0].datatype == BYTES:  # it tokenizes them itself
            feeds = texts_for(model, group)
        else:
            encoded = encode(preprocessor, group)
            feeds = feeds_for(model, collate(preprocessor, encoded, width or max(len(one.ids) for one in encoded)))
        yield Asked(
            feeds=feeds,
            digests=tuple(text_digest(text) for text in group),
            rows=rows[start : start + batch],
        )


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
    request, rows = infer_request(asked.feeds, model), len(asked.digests)
    url, path = model.url, f"{path_of(model.name, model.version)}/infer"
    headers = {"Content-Type": "application/json", **request.headers}
    try:
        status, found, content = exchange(url, "POST", path, request.body, headers)
    except OSError as error:
        raise MeasureError(f"{url} did not answer: {error}.", transient=True) from error
    if status != 200:
        raise MeasureError(f"{url}{path}: status {status}: {body_words(content)}")
    outputs = outputs_of(content, found.get(HEADER_LENGTH.lower()))
    for name, array in outputs.items():
        if array.ndim < 1 or len(array) != rows:
            raise MeasureError(f"output {name!r} of {model} has the shape {list(array.shape)} for {rows} samples.")
    if not outputs:
        raise MeasureError(f"{model} answers with no numbers.")
    return {model.renamed_outputs.get(name, name): np.array(array) for name, array in outputs.items()}
