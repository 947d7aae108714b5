"""The torch engine: target and slot cache, verification rules, the loop propose → verify → commit, the proposers."""
