"""From measurements to decisions: which drafter and D at each batch, why, and what it makes of a GPU."""
