"""The command line; the only door to click."""

__all__ = ["main"]

from issuer.surfaces.cli.main import main
