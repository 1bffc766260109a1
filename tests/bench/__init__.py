"""`make bench`: figures beside floors measured in the same run; ratios and counts, never absolute times in tests."""
