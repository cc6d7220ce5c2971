"""Reading click logs from files, tables and frames of any size."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from untilt._core.declared import changed, taking
from untilt._core.paths import is_utf8
from untilt._core.progress import progress
from untilt.data.clicklog import ClickLog
from untilt.data.layout import Grid
from untilt.data.limits import DEEPEST, DroppedRowsWarning
from untilt.data.read.bad_rows import BadRows, ReadReport, cut_lists, dropped_unevenly, examine
from untilt.data.read.collapse.assemble import NotCleanError, Wanted, assemble
from untilt.data.read.columns import (
    KEYS,
    MOST_PAGES,
    OF_DOCUMENTS,
    PAGE,
    PERSON,
    VERSION,
    ColumnRoles,
    DocumentFields,
    Impressions,
    LogSummary,
    Pages,
    Types,
    cell_sql,
    create_view,
    documents_layout,
    feature_fields,
    id_fields,
    log_fields,
    log_layout,
    stated_summary,
    summarise,
    unused_columns,
)
from untilt.data.read.database import Database, open_database, translated_errors
from untilt.data.read.files import refuse_changed, stamps
from untilt.data.read.options import Features, ReadOptions, Request, UbiRequest
from untilt.data.read.sources import Export, Source, at_hand, files_of, open_source
from untilt.data.read.types import Column, id_is_text_sql, text_sql, time_sql, whole_sql
from untilt.errors import BadRowsError, ColumnError, FileFormatError, OptionError
from untilt.facts import note

FEATURES_BY_DOCUMENT = note(
    "log.features-by-document",
    "The documents table has no query_id: each document has the same features for all queries that "
    "showed it, and documents that no list shows are not candidates.",
)()


@dataclass(frozen=True)
class LoadedTable:
    """A loaded table: its name, whose it is, and the columns that it was loaded for."""

    name: str
    source: Source
    layout: ColumnRoles
    types: Types
    ignored: tuple[str, ...] = ()


def read(request: Request) -> tuple[ClickLog, ReadReport]:
    """Read the log; bad rows are an error or are dropped, as asked for."""
    both = (request.source, request.documents)
    with at_hand(both, request.temp_directory) as (source, documents):
        return _read_here(replace(request, source=source, documents=documents))


def _read_here(request: Request) -> tuple[ClickLog, ReadReport]:
    files = [*files_of(request.source), *files_of(request.documents)]
    before = [stamps(part) for part in files]
    with open_database(
        memory_limit=request.memory_limit,
        temp_directory=request.temp_directory,
        threads=request.threads,
        files=[name for part in files for name in part.names],
    ) as database:
        request, log, table = _tables(database, request)
        with translated_errors(log.source.what):
            clicks, report = _read(database, request, log, table)
        for part, stamp in zip(files, before, strict=True):
            refuse_changed(part, stamp)
        told = [*report.notes, *log.source.notes]
        told += [] if table is None else table.source.notes
        bad = (*log.source.left_out, *report.bad)
        return clicks, replace(report, bad=bad, notes=tuple(told))


def _tables(
    database: Database, request: Request
) -> tuple[Request, LoadedTable, LoadedTable | None]:
    """Open both tables and settle their columns; the request as it applies to them."""
    columns = request.columns or {}
    if request.documents is None and columns.get(VERSION) is not None:
        raise OptionError(
            "⟦columns={'version': ...}⟧ links a row of the log to a row of the documents table. "
            "Give documents=, or leave version out: features in the log may change from row to "
            "row."
        )
    if isinstance(request.source, Export):
        own = {name: theirs for name, theirs in columns.items() if name.startswith(OF_DOCUMENTS)}
        log_columns = {name: theirs for name, theirs in columns.items() if name not in own}
        columns = {**request.source.document_keys, **own}
        request = replace(request, columns=log_columns)
        source = request.source.open(database, "log_table", request)
        # Its columns have our names by now, and its positions count from 1.
        request = replace(request, columns=None, positions_from=None)
    else:
        source = open_source(database, request.source, "log_table")
    layout = log_layout(
        source,
        columns=request.columns or {},
        labels=request.label_names,
        context=request.context,
        features=None if request.documents is not None else request.features,
    )
    unused = () if isinstance(request.source, Export) else unused_columns(source, layout)
    ignored: tuple[str, ...] = ()
    if source.count is not None and _may_be_counted(request, layout):
        if source.numeric is not None:
            layout, ignored = _numbers(source.what, layout, source.numeric(), request.features)
        layout, source = source.count(layout) or (layout, source)
    source = replace(source, notes=(*source.notes, *unused))
    log = _load(database, source, layout, request.features, ignored)
    if request.documents is None:
        return request, log, None
    source = open_source(database, request.documents, "documents_table")
    layout = documents_layout(source, columns=columns, features=request.features)
    documents = _load(database, source, layout, request.features)
    if "query_id" not in layout.roles:
        documents = _for_all_queries(database, log, documents)
    return request, log, documents


def _may_be_counted(request: Request, layout: ColumnRoles) -> bool:
    """Whether the engine that holds the log may count its sessions: by positions, without times."""
    halves = request.collapse == "halves" and "timestamp" in layout.roles
    counts_through = "position" in layout.roles and PAGE not in layout.roles
    return bool(request.collapse) and not halves and counts_through


def _for_all_queries(database: Database, log: LoadedTable, documents: LoadedTable) -> LoadedTable:
    """A table with one row per document as one with a row per query that showed it, too."""
    query, shown = (log.types[log.layout.roles[role]] for role in KEYS)
    own, name = documents.types[documents.layout.roles["doc_id"]], f"{documents.name}_of_queries"
    with translated_errors(documents.source.what):
        database.run(
            f"CREATE TEMP VIEW {name} AS SELECT query_id, each.* FROM {documents.name} AS each "
            f"JOIN (SELECT DISTINCT {query.raw} AS query_id, {text_sql(shown)} AS shown_id "
            f"FROM {log.name}) ON shown_id = {text_sql(own)}"
        )
    return replace(
        documents,
        name=name,
        source=replace(documents.source, notes=(FEATURES_BY_DOCUMENT,)),
        layout=replace(documents.layout, roles={"query_id": "query_id", **documents.layout.roles}),
        types={"query_id": replace(query, name="query_id"), **documents.types},
    )


def _load(
    database: Database,
    source: Source,
    layout: ColumnRoles,
    features: Features,
    ignored: tuple[str, ...] = (),
) -> LoadedTable:
    """Load a table; `ignored` are columns that were left out before."""
    for column in layout.names:
        if "\0" in column or not is_utf8(column):
            raise ColumnError(f"{source.what}: {column!r} is no name in SQL. Rename that column.")
    name = source.load(layout.names, layout.ids)
    with translated_errors(source.what):
        types = {name: Column(name, type_) for name, type_ in database.columns(name).items()}
    numbers = frozenset(name for name, column in types.items() if column.is_numeric)
    kept, more = _numbers(source.what, layout, numbers, features)
    return LoadedTable(name, source, kept, types, (*ignored, *more))


def _numbers(
    what: str, layout: ColumnRoles, numbers: frozenset[str], features: Features
) -> tuple[ColumnRoles, tuple[str, ...]]:
    """A rule for features takes the columns that hold numbers; those that it leaves out."""
    kept = layout.by_numbers(lambda column: column in numbers)
    for text, columns in kept.chosen.items():
        if layout.chosen[text] and not columns and features is not None:
            raise ColumnError(
                f"no column of {what} that fits the features {text} holds numbers: "
                f"{', '.join(layout.chosen[text])}. Convert them, or name other columns."
            )
    return kept, tuple(column for column in layout.features if column not in kept.features)


def _text_ids(
    database: Database, tables: Sequence[LoadedTable], request: Request
) -> frozenset[str]:
    """Roles whose ids are text. Where two tables differ, text is what both can be."""
    keys = [role for role in (*KEYS, VERSION) if role in tables[-1].layout.roles]
    tests = [
        (role, table.name, id_is_text_sql(table.types[table.layout.roles[role]], role))
        for table in tables
        for role in keys
    ]
    if request.text_ids:
        return frozenset(keys)
    return frozenset(
        role
        for role, name, test in tests
        if test == "true" or (test != "false" and database.row(f"SELECT {test} FROM {name}")[0])
    )


def _read(
    database: Database, request: Request, log: LoadedTable, documents: LoadedTable | None
) -> tuple[ClickLog, ReadReport]:
    tables = [log] if documents is None else [log, documents]
    text_ids = _text_ids(database, tables, request)
    owner = documents or log
    features = feature_fields(owner.layout.features, owner.types, request.missing)
    fields = DocumentFields(tuple(id_fields(owner.layout, owner.types, text_ids)), features)
    inline = features if documents is None else ()
    start = 0 if request.positions_from == 0 else 1
    if request.collapse and not _has_times(database, log):
        log = replace(log, layout=log.layout.without("timestamp"))
        tables[0] = log
    grid, pages = _grid(database, request, log, start), _pages(database, log, start)
    roles = log_fields(
        log.layout, log.types, text_ids, positions_from=start, grid=grid, pages=pages
    )
    impressions = Impressions(roles, inline)
    share = request.sample_queries
    create_view(database, "impressions", log.name, (*impressions.fields, *inline), share)
    view = None
    if documents is not None:
        create_view(database, view := "document_rows", documents.name, fields.fields, share)
    person = (PERSON,) if impressions.has(PERSON) else ()
    names = tuple(log.layout.labels), (*request.context, *person)
    wanted = Wanted(impressions, fields, *names, request.collapse, request.missing)
    ignored = tuple(name for table in tables for name in table.ignored)
    found, deep = None, None
    # A clean log in Parquet is read once, by what the file says of itself. Where that is wrong, or
    # the log is not clean, it is looked over first.
    plain = start == 1 and grid is None and pages is None
    as_it_is = bool(request.collapse) and share is None and plain
    if as_it_is and (stated := stated_summary(impressions, log.source.stated())):
        found = _if_clean(database, wanted, stated, view, log.source.what, ignored)
    if found is None:
        summary, deep = _within_depth(database, impressions)
        found = _if_clean(database, wanted, summary, view, log.source.what, ignored)
    if found is None:
        found = _without_bad_rows(database, request, wanted, view, log.source, ignored)
    clicks, report = found
    if deep is not None:
        report = report.with_more(deep)
    clicks = clicks if grid is None else clicks._with(layout=grid)
    if request.positions_from == 0 and clicks.n_impressions and clicks.position.min() > 1:
        raise OptionError(
            f"⟦positions_from=0⟧, but no row of {log.source.what} has position 0: the "
            f"smallest is {clicks.position.min() - 1}. Leave it out where positions "
            "count from 1."
        )
    return clicks, report


def _if_clean(
    database: Database,
    wanted: Wanted,
    summary: LogSummary,
    documents: str | None,
    what: str,
    ignored: tuple[str, ...],
) -> tuple[ClickLog, ReadReport] | None:
    """The log, if it is clean. No frame of a failure is left, which would keep a result open."""
    try:
        clicks, changing = assemble(database, wanted, summary, "impressions", documents)
    except NotCleanError:
        return None
    return clicks, ReadReport(what, summary.n_rows, 0, (), ignored, changing)


def _grid(database: Database, request: Request, log: LoadedTable, start: int) -> Grid | None:
    """The grid of a log with rows and columns: as given, else as large as the log has it."""
    if "row" not in log.layout.roles:
        if request.grid is not None:
            raise OptionError(
                f"⟦grid={request.grid!r}⟧ needs to know the cells, and "
                f"{log.source.what} has no columns row and column. Name them: "
                "⟦columns={'row': ..., 'column': ...}⟧."
            )
        return None
    if request.grid is not None:
        return Grid(*request.grid)
    row, column = cell_sql(log.layout, log.types, positions_from=start)
    rows, columns = database.row(f"SELECT max({row}), max({column}) FROM {log.name}")
    return Grid(int(rows or 1), int(columns or 1))


def _pages(database: Database, log: LoadedTable, start: int) -> Pages | None:
    """How many positions a page has: as many as the log's longest page shows."""
    if PAGE not in log.layout.roles:
        return None
    page, position = (log.types[log.layout.roles[role]] for role in (PAGE, "position"))
    number = whole_sql(page, PAGE, most=MOST_PAGES, least=0)
    place = whole_sql(position, "position", most=DEEPEST, least=start)
    first, size = database.row(f"SELECT min({number}), max({place}) FROM {log.name}")
    return Pages(0 if first == 1 else 1, int(size or 1))


def _within_depth(database: Database, log: Impressions) -> tuple[LogSummary, BadRows | None]:
    """What the log is like, and the rows that it must do without because they lie too deep."""
    with progress("looking over the log"):
        summary = summarise(database, "impressions", log)
        if summary.depth <= DEEPEST:
            return summary, None
        deep = cut_lists(database, log)
        return summarise(database, "impressions", log), deep


def _has_times(database: Database, log: LoadedTable) -> bool:
    """Whether every row says when; where sessions are merged no row is refused for its time."""
    if "timestamp" not in log.layout.roles:
        return False
    try:
        time = time_sql(log.types[log.layout.roles["timestamp"]])
    except ColumnError:
        return False
    return not database.row(f"SELECT count(*) FILTER ({time} IS NULL) FROM {log.name}")[0]


def _without_bad_rows(
    database: Database,
    request: Request,
    wanted: Wanted,
    documents: str | None,
    source: Source,
    ignored: tuple[str, ...],
) -> tuple[ClickLog, ReadReport]:
    what = source.what
    with progress("looking for bad rows"):
        examined = examine(
            database, wanted.log, documents=documents, document_fields=wanted.documents
        )
        (n_rows,) = database.row("SELECT count(*) FROM impressions")
    if not (examined.bad or examined.notes):
        raise FileFormatError(
            f"{what} gives different rows when it is read twice. The file is damaged or changed "
            "while it was read. Write it again."
        )
    known = (*examined.notes, *source.notes)
    refused = ReadReport(what, n_rows, 0, examined.bad, ignored, notes=known)
    refuses = request.on_bad == "raise" and bool(examined.bad)
    if refuses or (refused.counts_from_zero and request.positions_from is None):
        raise BadRowsError(refused.error_text())
    summary = summarise(database, examined.impressions, wanted.log)
    clicks, changing = assemble(database, wanted, summary, examined.impressions, examined.documents)
    repeated = sum(fact.fields["n"] for fact in examined.notes)
    n_dropped = n_rows - repeated - summary.n_rows
    uneven = dropped_unevenly(database, examined.impressions) if n_dropped else None
    notes = (*examined.notes, *([uneven] if uneven else []))
    return clicks, ReadReport(what, n_rows, n_dropped, examined.bad, ignored, changing, notes)


__all__ = [
    "BadRows",
    "DroppedRowsWarning",
    "ReadOptions",
    "ReadReport",
    "read_log",
    "read_log_report",
    "read_ubi",
]


@taking(Request)
def read_log(request: Request) -> ClickLog:
    """Read a click log with one row per impression.

    A row has `query_id`, `session_id`, `doc_id`, `position` (from 1) and `click`, and may have
    `ranker` (which made the list), `timestamp`, `count` (the number of sessions with this list),
    `propensity` (the probability with which the logging policy showed the document there) and
    `person` (intervals then allow for people who come back). The rows of one session and one
    query are one list; their order does not matter. Lists end at position 1,000: rows further down
    are left out with a `DroppedRowsWarning`. docs/log-format.md is the reference.

    DuckDB does the work and spills to disk, so the log may be larger than memory. Sessions of a
    query with equal documents, positions and labels become one list with a count; this is exact.
    The result does not depend on the order of rows or the number of threads.

    Parameters
    ----------
    source : a path to Parquet, CSV or JSON lines (also .gz, .zst, .bz2), Feather, or a DuckDB or
        SQLite database; a folder or pattern of files, a list of paths, (database, table name), an
        address s3://... or (postgresql://..., table name), a DuckDB relation, a pyarrow, Polars or
        pandas table, a `DeltaTable`, a pyiceberg table or scan, a cursor of ADBC; an Ibis table, a
        Spark DataFrame or (PostgreSQL connection, table name), whose engine counts equal sessions
        before it sends rows, as does the server behind postgresql:// (see `collapse_sql`)
    documents : a table (any kind of source) with one row per (query_id, doc_id); its other columns
        of numbers are the features. Documents that no list shows stay as unshown candidates. With
        doc_id alone, a document has the same features for all queries that showed it
    columns : our names to yours, such as {"query_id": "srch_id", "click": "click_bool"}; None in
        place of a name leaves out an optional column. {"random": "random_bool"} names a flag that
        is true where a list was shown in random order: such lists get the ranker "shuffle", others
        "production" (with a column of rankers: "shuffle:" and its name, and its name).
        {"version": "price_list"} names a column of both tables: `documents` then has one row per
        (query_id, doc_id, version), and a row of the log the features of its version
    label, labels : the feedback column that becomes `log.label`, and further ones that become
        `log.extra_labels`; numbers >= 0 or true/false
    context : columns that describe the circumstances of a list (device, hour), numbers or text,
        for `ContextualBias`; they become `log.context`, and sessions of different contexts
        stay apart
    features : columns that are features: names and patterns such as "f_*" (a list, or one text
        with commas between them), or a function of the name; in `documents` if given (there all by
        default), else in the log (there none). A name that fits no column is an error. In the log
        they may change from impression to impression (price, stock, features of the user): a
        document then has one version for each set of features, and `log.item` groups the versions
    grid : (rows, columns) of a log whose rows have a `row` and a `column` in place of a position,
        where it is larger than what the log shows of it; see docs/grids.md
    positions_from : 0 for a log whose positions count from 0: they are read as 1, 2, 3, ... Without
        it, a log that seems to count from 0 is refused for any `on_bad`; 1 makes rows at position
        0 bad rows like others
    missing : treatment of features that are NULL or NaN: "keep" leaves them to rankers that take
        them (trees do), a number is put in their place, and rankers that learn from the log put the
        same number there when they score; without it they are bad rows
    text_ids : read whole numbers as ids of text
    collapse : False keeps every session apart, with its time. "halves" merges sessions within each
        half of the time where `timestamp` is known in every row: `log.time` is 0 and 1 then
    on_bad : "raise" refuses a log with bad rows and names them; "drop" leaves them out with a
        `DroppedRowsWarning` that counts them (`read_log_report` returns the counts instead)
    sample_queries : a share, such as 0.1: read about so many of the queries, with all their
        sessions and documents, and leave out the others. The choice depends only on
        their ids: it is the same in every log, and 0.2 includes the queries of 0.1
    memory_limit : memory that DuckDB may use, in bytes or as text ("4GB"); half of the free memory
        by default. UNTILT_MEMORY_LIMIT in the environment is for the whole process
    temp_directory : where to spill; the system's temporary folder by default
    threads : largest number of threads; all cores by default

    Examples
    --------
    >>> log = read_log("clicks.parquet", documents="documents.parquet")    # doctest: +SKIP
    """
    log, report = read(request)
    if report.bad:
        warnings.warn(str(report), DroppedRowsWarning, stacklevel=3)
    elif any(note.severity != "note" for note in report.notes):
        warnings.warn(str(report), UserWarning, stacklevel=3)
    return log


@taking(UbiRequest)
def read_ubi(request: UbiRequest) -> ClickLog:
    """Read an export of User Behavior Insights (UBI 1.3: OpenSearch, Elasticsearch, Solr).

    Its query_id is our session, its user_query our query, an object our document. Impression events
    give the results that were shown; without them, the returned hits do, in their order. Events of
    unknown queries are left out, and repeated ones count once. docs/sources.md is the reference.
    `read_log_report(ut.Ubi(queries, events))` returns a report of what was left out.

    Parameters
    ----------
    queries, events : the documents of `ubi_queries` and of `ubi_events`: JSON lines (also .gz),
        bare or with `_source` around them, or any table that `read_log` takes
    hits_shown : how many of the returned hits were on the page, where no event is an impression
    options : those of `read_log`. `label` and `labels` are names of actions ("click" is also
        "click_through"). `columns` maps our names to paths inside the documents: {"ranker":
        "query_attributes.variant"}; labels and "impression" to names of actions: {"click":
        "product_click"}. `positions_from` is the first ordinal; by default the hits tell.
        `documents` may have one row per document: features of an object that all queries share

    Examples
    --------
    >>> log = read_ubi("ubi_queries.jsonl", "ubi_events.jsonl")    # doctest: +SKIP
    """
    from untilt.data.read.ubi import Ubi

    export = Ubi(request.queries, request.events, request.hits_shown)
    return read_log(export, **changed(request, ReadOptions))


@taking(Request)
def read_log_report(request: Request) -> tuple[ClickLog, ReadReport]:
    """Like `read_log`, but returns a report of dropped rows instead of a warning."""
    return read(request)
