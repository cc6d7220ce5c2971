"""The main job: from a click log to a decision, step by step, resumable."""
