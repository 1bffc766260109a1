"""The policies that a new ledger starts with, as data: bots write notes, a person is asked for the rest.

The operations are `create_file` and `replace_file`, both of class `files`, on a resource type `File` whose
one attribute `path` is the actor's word. Beside it stand the acts of people by their roles, the same for every starter.
An owner edits the copy that the quickstart makes, not this file.
"""

from __future__ import annotations

from importlib import resources

FILE_NAME = "files.cedar"
ROLES_NAME = "roles.cedar"


def starter_files() -> dict[str, str]:
    """Return the starter bundle's files by name, as `policies.bundle.load_bundle` takes them."""
    return {name: _text(name) for name in (FILE_NAME, ROLES_NAME)}


def role_policies() -> str:
    """Return who may do what besides asking for effects, as policies of every starter bundle (POL-01)."""
    return _text(ROLES_NAME)


def _text(name: str) -> str:
    return resources.files("policies.starter").joinpath(name).read_text(encoding="utf-8")
