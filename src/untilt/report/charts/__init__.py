"""Charts for the command line, the documentation and the papers."""
