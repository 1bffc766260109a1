"""Guards that are seen to fail: one removal per file, and the test that must notice it. `run.py` plays them."""
