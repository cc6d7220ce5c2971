"""Packages that a plain install does not bring, with a clear error where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from untilt.errors import MissingExtraError

_EXTRAS = {
    "pyarrow": "arrow",
    "sklearn": "sklearn",
    "vl_convert": "pictures",
    "mlflow": "mlflow",
    "xgboost": "cluster",
}


@contextmanager
def explained_import(what: str) -> Iterator[None]:
    """Inside, an optional package that is not installed is an error that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise MissingExtraError(what, package, _EXTRAS[package]) from error
