"""Other tools' files: what they say in our words, and results in the shapes that they read."""
