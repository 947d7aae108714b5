"""Replay: the acceptance of every D out of answers that are there already: outputs → trace → records."""
