"""Layer 6: the command line: parse, call, print."""
