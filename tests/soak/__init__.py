"""Long runs under faults, each with a short one that keeps its tools honest in every test run."""
