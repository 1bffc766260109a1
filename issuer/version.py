"""The version of this release, written once here and in `pyproject.toml`; a test compares the two."""

VERSION = "0.1.0"
