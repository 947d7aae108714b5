"""One file an engine: bring it up, and yield passes and records."""
