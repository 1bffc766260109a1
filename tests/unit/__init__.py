"""Small tests of one module at a time."""
