"""Layer 5: charts, for the command line and for reports."""
