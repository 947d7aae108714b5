"""Published results: submissions of raw counts, the rules they must keep, and the boards that come of them."""
