"""The policies that a new ledger starts with, as data: bots write notes, a person is asked for the rest.

The operations are `create_file` and `replace_file`, both of class `files`, on a resource type `File` whose
one attribute `path` is the actor's word. An owner edits the copy that the quickstart makes, not this file.
"""

from __future__ import annotations

from importlib import resources

FILE_NAME = "files.cedar"


def starter_files() -> dict[str, str]:
    """Return the starter bundle's files by name, as `policies.bundle.load_bundle` takes them."""
    return {FILE_NAME: resources.files("policies.starter").joinpath(FILE_NAME).read_text(encoding="utf-8")}
