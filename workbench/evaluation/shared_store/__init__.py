"""A store that several machines share: a folder, NFS, or anything that speaks S3. It holds what a local `Store` holds.

    <url>/v1/files/<2 hex>/<sha256>                     content, written once under its digest
    <url>/v1/entries/<kind>/<2 hex>/<digest>.json       an entry: names, sizes and sha256 of its files, sealed
    <url>/v1/uploads/<random>                           of a folder: a file before it gets its name

An entry is there when its JSON is, which is written after all of its files: nothing depends on a rename, and of two
writers either's entry is whole. Whoever reads holds every file against its sha256 and takes what does not match as
absent. Whoever may write here decides what others take for results; a digest finds damage, not intent.

    shared = open_shared_store("s3://team/workbench")
    Store(root, shared=shared)                          # reads through and writes through

What is local (locks, journals, the queue of what is to be published) lives elsewhere. Nothing is unpickled.
"""

from workbench.evaluation.shared_store.publishing import Publisher
from workbench.evaluation.shared_store.remote import Away
from workbench.evaluation.shared_store.shared import (
    STORE_VARIABLE,
    Cleaned,
    Fetched,
    SharedStore,
    clean,
    open_shared_store,
    usage_of,
)

__all__ = [
    "STORE_VARIABLE",
    "Away",
    "Cleaned",
    "Fetched",
    "Publisher",
    "SharedStore",
    "clean",
    "open_shared_store",
    "usage_of",
]
