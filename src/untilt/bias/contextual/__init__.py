"""Position bias that depends on the query or session."""
