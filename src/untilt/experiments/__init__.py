"""Layer 5: one file per table or figure of the papers; empty until the first is reproduced."""
