"""Position bias from documents that were shown at several positions without an experiment."""
