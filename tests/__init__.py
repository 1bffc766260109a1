"""The specification in executable form, sorted by kind of test and not by room."""
