"""Layer 4: logs with a known truth. Nothing that learns may import this package."""
