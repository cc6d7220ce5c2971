"""A ranker behind HTTP: it shows lists, explores a little, logs what it showed, and collects it."""
