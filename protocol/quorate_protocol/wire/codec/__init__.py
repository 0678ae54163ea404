"""Functions that read and write an entity class: of closures while it is rarely used, then generated."""
