"""Suites that every implementation of a port passes."""
