"""Position bias and relevance learned together, by expectation maximisation."""
