"""The stacked learner: one ranker from clicks and from what the old ranker knew."""
