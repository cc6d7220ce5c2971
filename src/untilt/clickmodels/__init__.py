"""Layer 2: click models. How people read a page, learned from repeated sessions."""
