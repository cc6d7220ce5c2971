"""Logs that lie in an object store (s3://): their files are copied here for as long as it takes.

Copied and not read in place: a log is read more than once, and what is read must be the same each
time. A copy also has the same rules as any file: kinds, folders, damage, table formats.
"""

import glob
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from untilt._core.addresses import Address, address_of, names_somebody, shown
from untilt._core.optional import explained_import
from untilt._core.progress import progress
from untilt.data.read.database import own_folder
from untilt.data.read.files import (
    FILE_KINDS,
    LAKE_MARKS,
    LEVELS_ABOVE,
    Files,
    located,
    refuse_lake_listing,
    refuse_lake_place,
)
from untilt.errors import FileFormatError, MemoryLimitError, OptionError, UntiltError

_BLOCK = 1 << 22
_DATABASES = tuple(each for kind in FILE_KINDS if kind.has_tables for each in kind.endings)
_CHANGES = tuple(each for kind in FILE_KINDS for each in kind.changes)
_OPTIONS = ("region", "endpoint", "anonymous")


@contextmanager
def fetched(source: Any, temp_directory: str | os.PathLike[str] | None = None) -> Iterator[Any]:
    """The source with its files in a folder here, which is gone when the block ends.

    Errors inside the block name the address, not the copy. What is no address of a store stays.
    """
    address = address_of(source)
    if address is None or address.scheme != "s3":
        yield located(source) if address is None else address
        return
    with own_folder(temp_directory) as folder, _named_as_given(str(folder) + os.sep):
        with explained_import(f"reading {address.what}"):
            files = _copied(address, folder)
        yield files


@contextmanager
def _named_as_given(copies: str) -> Iterator[None]:
    """Errors with the address in place of the folder of its copies."""
    try:
        yield
    except UntiltError as error:
        text = str(error).replace(copies, "s3://")
        if text == str(error):
            raise
        raise type(error)(text) from error


def _copied(address: Address, folder: Path) -> Files:
    """The files behind the addresses, below a folder, under the names that they have there."""
    places = [_Place.parse(uri) for uri in address.uris]
    sources: list[Any] = [place.copy_to(folder) for place in places]
    table = address.table
    if table is not None:
        return replace(located((sources[0], table)), what=address.what)
    flat = [file for each in sources for file in (each if isinstance(each, list) else [each])]
    found: Files = located(flat)
    return replace(found, what=address.what)


@dataclass(frozen=True)
class _Place:
    """A key, a prefix or a pattern of keys in a bucket."""

    bucket: str
    path: str
    options: dict[str, str]

    @classmethod
    def parse(cls, uri: str) -> "_Place":
        if names_somebody(uri):
            raise OptionError(
                f"an address must not hold keys, because others can see it: {shown(uri)}. Set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile in AWS_PROFILE."
            )
        rest = uri.partition("://")[2]
        path, _, query = rest.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := [each for each in options if each not in _OPTIONS]:
            raise OptionError(
                f"{shown(uri)} has a parameter {unknown[0]!r}. Known ones are "
                f"{', '.join(_OPTIONS)}; a question mark is no part of a pattern here."
            )
        bucket, _, key = path.partition("/")
        if not bucket:
            raise OptionError(f"{shown(uri)} names no bucket. Write s3://bucket/clicks.parquet.")
        return cls(bucket, key.strip("/"), options)

    @property
    def whole(self) -> str:
        """Bucket and key, as the file system has it."""
        return f"{self.bucket}/{self.path}".rstrip("/")

    def copy_to(self, folder: Path) -> Any:
        """Copy what is there; what to read of the copy: a path, or the paths that fit a pattern."""
        try:
            store = self._store()
            infos = self._listed(store)
            _copy(store, infos, folder)
        except OSError as error:
            raise FileFormatError(
                f"s3://{self.whole} cannot be read: {' '.join(str(error).split())[:600]}. Check "
                "the address, the region and the keys (AWS_ACCESS_KEY_ID, AWS_PROFILE)."
            ) from error
        if not infos:
            raise FileFormatError(f"cannot read 's3://{self.whole}'. There is no such file.")
        if glob.has_magic(self.path):
            return [str(folder / info.path) for info in infos]
        return str(folder / self.whole)

    def _store(self) -> Any:
        from pyarrow import fs

        endpoint = (
            self.options.get("endpoint")
            or os.environ.get("AWS_ENDPOINT_URL_S3")
            or os.environ.get("AWS_ENDPOINT_URL")
        )
        region = (
            self.options.get("region")
            or os.environ.get("AWS_REGION")
            or os.environ.get("AWS_DEFAULT_REGION")
        )
        if region is None and endpoint is None:
            region = fs.resolve_s3_region(self.bucket)
        options: dict[str, Any] = {"region": region, "connect_timeout": 20, "request_timeout": 60}
        if endpoint is not None:
            scheme, _, host = endpoint.rpartition("://")
            options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
        if self.options.get("anonymous", "").lower() in ("1", "true", "yes"):
            options["anonymous"] = True
        return fs.S3FileSystem(**{key: each for key, each in options.items() if each is not None})

    def _listed(self, store: Any) -> list[Any]:
        """All files below a prefix or of a pattern, or the one file; none of a table format."""
        from pyarrow import fs

        if not glob.has_magic(self.path):
            (info,) = store.get_file_info([self.whole])
            if info.type == fs.FileType.File:
                self._refuse_tables(store, [info])
                return [info, *self._changes(store)]
            base, fits = self.whole, None
        else:
            parts = self.path.split("/")
            plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
            base, fits = "/".join([self.bucket, *parts[:plain]]), _pattern(self.whole)
        selector = fs.FileSelector(base, allow_not_found=True, recursive=True)
        found = [each for each in store.get_file_info(selector) if each.type == fs.FileType.File]
        refuse_lake_listing(
            (each.path.removeprefix(f"{base}/") for each in found), root=f"s3://{base}"
        )
        found = [each for each in found if fits is None or fits.fullmatch(each.path)]
        self._refuse_tables(store, found[:1])
        return sorted(found, key=lambda each: each.path)

    def _changes(self, store: Any) -> list[Any]:
        """The last changes of a database, where it is one."""
        from pyarrow import fs

        if not self.path.lower().endswith(_DATABASES):
            return []
        beside = store.get_file_info([self.whole + ending for ending in _CHANGES])
        return [each for each in beside if each.type == fs.FileType.File]

    def _refuse_tables(self, store: Any, infos: Iterable[Any]) -> None:
        """Raise where a folder above a file belongs to a table format."""
        from pyarrow import fs

        def names_in(place: str) -> list[str]:
            path = place.removeprefix("s3://")
            if path.endswith("/metadata"):
                selector = fs.FileSelector(path, allow_not_found=True)
                return [each.base_name for each in store.get_file_info(selector)]
            infos = store.get_file_info([f"{path}/{mark}" for mark in LAKE_MARKS])
            return [each.base_name for each in infos if each.type == fs.FileType.Directory]

        for info in infos:
            parts = info.path.split("/")[:-1]
            for level in range(len(parts), max(0, len(parts) - LEVELS_ABOVE), -1):
                try:
                    refuse_lake_place(f"s3://{'/'.join(parts[:level])}", names_in)
                except OSError:  # keys that may read this file and list nothing
                    return


def _copy(store: Any, infos: Sequence[Any], folder: Path) -> None:
    total = sum(info.size or 0 for info in infos)
    free = shutil.disk_usage(folder).free
    if total > free:
        raise MemoryLimitError(
            f"the log has {total:,} bytes and is copied to {folder.parent}, where {free:,} are "
            "free. Point temp_directory (TMPDIR) to a disk with more room."
        )
    with progress("fetching the log", total=total) as advance:
        for info in infos:
            parts = info.path.split("/")
            if any(part in ("", ".", "..") or "\0" in part for part in parts):
                raise FileFormatError(f"the key {info.path!r} cannot be the name of a file.")
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with store.open_input_stream(info.path) as content, target.open("wb") as copy:
                while block := content.read(_BLOCK):
                    copy.write(block)
                    advance(len(block))
            (now,) = store.get_file_info([info.path])
            if (now.size, now.mtime) != (info.size, info.mtime) or (
                target.stat().st_size != info.size
            ):
                raise FileFormatError(
                    f"s3://{info.path} changed while it was read, so a part of the data may be "
                    "old. Read it again when no program writes to it."
                )


def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of a shell as a regular expression: * within a folder, ** over folders."""
    parts = []
    for part in text.split("/"):
        if part == "**":
            parts.append("(?:[^/]+/)*")
            continue
        escaped = "".join(
            "[^/]*" if piece == "*" else _class(piece)
            for piece in re.findall(r"\*|\[!?\]?[^\]/]*\]|[^*\[]+|\[", part)
        )
        parts.append(escaped + "/")
    return re.compile("".join(parts).removesuffix("/"), re.DOTALL)


def _class(piece: str) -> str:
    if len(piece) > 2 and piece[0] == "[" and piece[-1] == "]":
        inside = piece[1:-1].replace("\\", "\\\\")
        return f"[{'^' + inside[1:] if inside[0] == '!' else inside}]"
    return re.escape(piece)
