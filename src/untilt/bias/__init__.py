"""Layer 2: position bias, given or estimated, always with its uncertainty."""
