"""The tables and figures of the papers as declarative files, run, resumed and compared."""
