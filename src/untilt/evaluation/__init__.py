"""Evaluation with intervals. It takes scores, so it never sees a ranker."""
