"""`issuer demo`: six acts with a real issuer, a real file, a real service on this machine, and nothing canned."""

__all__ = ["run_demo"]

from issuer.demo.acts import run_demo
