"""Layer 0: what every other layer stands on. Nothing here knows what a click is."""
