"""Reading logs with DuckDB, in pieces, so that memory bounds neither sources nor sessions."""
