"""Linear rankers and the ranking SVM."""
