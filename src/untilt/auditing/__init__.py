"""What a log can identify, what is wrong with it, and which experiment would help."""
