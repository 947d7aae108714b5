"""What a pass costs, from a few measured ones: non-negative terms, with the error of leaving each out."""
