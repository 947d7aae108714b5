"""One file a draft mechanism: what it reads, and what each backend calls it."""
