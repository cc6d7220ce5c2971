"""Layer 1: click logs and judged lists, from and to disk."""
