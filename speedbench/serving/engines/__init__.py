"""One file an engine: what it is told, as a pure function of what is wanted."""
