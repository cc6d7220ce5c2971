"""Impressions in DuckDB to distinct lists with counts; `assemble.assemble` is the only entry.

`numbering` gives documents, labels and queries small numbers. `runs` packs rows that follow each
other into words and merges equal lists as they go by; where rows stand in no order, `packing` has
DuckDB group them. `assemble` unpacks what is left into a `ClickLog`.
"""
