"""Drafters over answers that are known already: what each would propose behind every token, in few passes."""
