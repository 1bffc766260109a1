"""Rules that must hold for every value that a generator can think of."""
