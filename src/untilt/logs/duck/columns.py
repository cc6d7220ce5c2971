"""Which column plays which role: names mapped, missing ones named, features chosen."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from untilt._core.suggest import did_you_mean
from untilt.errors import ColumnError, OptionError
from untilt.logs.duck.sources import Source

Features = str | Sequence[str] | Callable[[str], bool] | None

REQUIRED = ("query_id", "session_id", "doc_id", "position")
OPTIONAL = ("ranker", "timestamp", "count")
KEYS = ("query_id", "doc_id")
# Names that logs out there use; a hint is better than a list of columns to stare at.
_OTHER_NAMES = {
    "query_id": ("qid", "query", "srch_id", "search_id", "keyword", "search_term"),
    "session_id": ("session", "sid", "search_id", "srch_id", "request_id", "impression_id"),
    "doc_id": ("doc", "document", "docid", "url", "item_id", "product_id", "prop_id", "asin"),
    "position": ("rank", "pos", "slot", "place"),
    "click": ("clicked", "clicks", "is_click", "click_bool", "label"),
}


@dataclass(frozen=True)
class Layout:
    """Their column for each of our roles, for each label, and the columns that are features."""

    roles: Mapping[str, str]
    labels: Mapping[str, str]
    features: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Every column that is needed, once."""
        return list(dict.fromkeys([*self.roles.values(), *self.labels.values(), *self.features]))

    @property
    def ids(self) -> frozenset[str]:
        """Columns that hold ids."""
        roles = ("query_id", "session_id", "doc_id", "ranker")
        return frozenset(self.roles[role] for role in roles if role in self.roles)


def log_layout(
    source: Source,
    *,
    columns: Mapping[str, str | None],
    labels: Sequence[str],
    features: Features,
    with_time: bool,
) -> Layout:
    """The layout of an impressions table."""
    _check_mapping(columns, labels)
    wanted = [*REQUIRED, *labels]
    roles = {role: columns.get(role) or role for role in wanted}
    for role in OPTIONAL:
        theirs = columns.get(role, role)
        # Asked for by name it must be there; under our own name it may be.
        if theirs is not None and (role in columns or source.has(theirs)):
            roles[role] = theirs
    _refuse_missing(source, roles)
    if not with_time:
        roles.pop("timestamp", None)
    used = {*roles.values(), columns.get("timestamp") or "timestamp"}
    chosen = {label: roles.pop(label) for label in labels}
    return Layout(roles, chosen, choose_features(source, features, used))


def documents_layout(
    source: Source, *, columns: Mapping[str, str | None], features: Features
) -> Layout:
    """The layout of a documents table: our names for the keys, or the log's."""
    roles = {}
    for role in KEYS:
        theirs = columns.get(role) or role
        roles[role] = theirs if source.has(theirs) else role
    _refuse_missing(source, roles)
    chosen = choose_features(source, "*" if features is None else features, set(roles.values()))
    return Layout(roles, {}, chosen)


def choose_features(source: Source, features: Features, used: set[str]) -> tuple[str, ...]:
    """The features' columns: a list, a pattern such as 'f_*', or a function of the name."""
    others = [name for name in source.columns if name not in used]
    if features is None:
        return ()
    if callable(features):
        return tuple(name for name in others if features(name))
    if isinstance(features, str) and set(features) & set("*?["):
        return tuple(name for name in others if fnmatchcase(name, features))
    names = (features,) if isinstance(features, str) else tuple(features)
    if len(set(names)) < len(names):
        raise OptionError(f"features must name each column once. Got {list(names)} instead.")
    _refuse_missing(source, {name: name for name in names})
    return names


def is_pattern(features: Features) -> bool:
    """Whether the choice is a rule: columns that fit it but hold no numbers are left alone."""
    return (
        features is None
        or callable(features)
        or (isinstance(features, str) and bool(set(features) & set("*?[")))
    )


def _check_mapping(columns: Mapping[str, str | None], labels: Sequence[str]) -> None:
    known = (*REQUIRED, *OPTIONAL, *labels)
    if len(set(known)) < len(known):
        raise OptionError(
            f"a label must have a name of its own. Got {list(labels)}; the names "
            f"{', '.join((*REQUIRED, *OPTIONAL))} are taken. Map a label that is called so: "
            f"label='click', columns={{'click': 'count'}}."
        )
    for ours, theirs in columns.items():
        if ours not in known:
            raise OptionError(
                f"columns maps our names to yours: {', '.join(known)}. Got the key {ours!r} "
                f"instead.{did_you_mean(str(ours), known)}"
            )
        if not isinstance(theirs, str) and not (theirs is None and ours in OPTIONAL):
            raise OptionError(f"columns[{ours!r}] must be a column's name. Got {theirs!r} instead.")


def _refuse_missing(source: Source, roles: Mapping[str, str]) -> None:
    missing = {role: name for role, name in roles.items() if not source.has(name)}
    if not missing:
        return
    hints = [hint for role, name in missing.items() if (hint := _hint(role, name, source.columns))]
    example = next(iter(missing))
    raise ColumnError(
        f"{source.what} lacks the columns {_listed(missing.values())}. "
        f"Found: {_listed(source.columns) or 'none'}."
        + (f" Did you mean {', '.join(hints)}?" if hints else "")
        + f" Map names with columns={{{example!r}: 'your column'}}."
    )


def _hint(role: str, name: str, found: Sequence[str]) -> str:
    by_lower = {column.lower(): column for column in found}
    known = [by_lower[other] for other in _OTHER_NAMES.get(role, ()) if other in by_lower]
    near = [by_lower[close] for close in get_close_matches(name.lower(), list(by_lower), n=1)]
    return f"{role} = {(near or known)[0]!r}" if near or known else ""


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
