"""No password and no key is ever shown."""

import os
from pathlib import Path

import pytest

from untilt._core.addresses import Address, address_of, is_address, place, shown, without_secrets
from untilt.errors import OptionError

SHOWN = {
    "postgresql://ann:se%40cret@db:5432/shop": "postgresql://ann@db:5432/shop",
    "postgres://:secret@db/shop": "postgres://db/shop",
    "postgresql://ann:se@cret/x@db/shop": "postgresql://ann@db/shop",
    "postgresql:///shop?host=/run/pg&password=secret": "postgresql:///shop?host=/run/pg",
    "postgresql://db/shop?sslmode=require&sslpassword=secret&user=ann": (
        "postgresql://db/shop?sslmode=require"
    ),
    "s3://AKIA:secret@bucket/log.parquet": "s3://bucket/log.parquet",
    "s3://bucket/log/*.parquet?region=eu-west-1&X-Amz-Signature=secret": (
        "s3://bucket/log/*.parquet?region=eu-west-1"
    ),
    "s3://AKIA:se/cret@bucket/log.parquet": "s3://bucket/log.parquet",
    "s3://bucket/a@b/log@2.parquet": "s3://bucket/a@b/log@2.parquet",
    "S3://bucket/a": "S3://bucket/a",
    "clicks@home.parquet": "clicks@home.parquet",
}


@pytest.mark.parametrize("address", SHOWN)
def test_how_an_address_is_shown(address):
    assert shown(address) == SHOWN[address]
    assert "secret" not in repr(address_of(address) or "")


def test_no_address_can_break_the_parser():
    for text in ("postgresql://[::1/x", "s3://[", "s3://%%%/?=&", "postgresql://a:b@[/x?y"):
        assert address_of(text).scheme in ("s3", "postgresql")
        assert without_secrets(shown(text))


def test_text_with_addresses_in_it():
    text = "untilt run 'postgresql://ann:secret@db/shop' --documents https://u:secret@host/x.csv"
    assert without_secrets(text) == (
        "untilt run 'postgresql://ann@db/shop' --documents https://host/x.csv"
    )
    assert without_secrets("mail ann@home, or see https://a.b/c") == (
        "mail ann@home, or see https://a.b/c"
    )


def test_errors_of_a_driver():
    address = Address(("postgresql://ann:se%40cret@db/shop?sslpassword=hush",))
    told = address.scrubbed(f"bad URI {address.uris[0]}; se@cret, se%40cret and hush")
    assert told == "bad URI postgresql://ann@db/shop; ***, *** and ***"


def test_a_file_of_such_a_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_address("s3://bucket/log.csv")
    (tmp_path / "s3:" / "bucket").mkdir(parents=True)
    (tmp_path / "s3:" / "bucket" / "log.csv").write_text("")
    assert not is_address("s3://bucket/log.csv")


def test_what_a_command_takes_as_a_path():
    given = place("postgresql://ann:secret@db/shop")
    assert isinstance(given, Path)
    assert str(given) == given.name == f"{given}" == "postgresql://ann@db/shop"
    assert os.fspath(given) == "postgresql://ann:secret@db/shop"
    assert address_of((given, "clicks")) == Address((os.fspath(given),), "clicks")
    assert place("a/b.csv") == Path("a/b.csv")


def test_lists_of_both_kinds():
    with pytest.raises(OptionError, match="alone"):
        address_of(["s3://bucket/a.csv", "b.csv"])
    with pytest.raises(OptionError, match="alone"):
        address_of(["postgresql://a/b", "postgresql://c/d"])
    assert address_of(["s3://bucket/a.csv", "s3://bucket/b.csv"]).what == (
        "s3://bucket/a.csv and others"
    )
