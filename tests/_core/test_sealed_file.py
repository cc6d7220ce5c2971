"""Seals: a checksum for accidents, and a keyed one for people."""

import hashlib

import pytest

from untilt._core.saved import seal, seal_keys, unseal
from untilt.errors import FileFormatError, OptionError

PARTS = {"a": b"content", "b": bytes(100)}
ONE, TWO = "one key of at least thirty-two characters".replace(" ", "-"), "2" * 32


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("UNTILT_SEAL_KEY", raising=False)
    monkeypatch.delenv("UNTILT_SEAL_KEY_FILE", raising=False)


@pytest.fixture
def key(monkeypatch):
    def set_key(text):
        monkeypatch.setenv("UNTILT_SEAL_KEY", text)

    return set_key


def opened(data):
    archive = unseal(data, seal_keys())
    return {name: archive.read(name) for name in archive.unread}


def test_without_a_key(key):
    data = seal(PARTS, "ranker")
    assert opened(data) == PARTS
    key(ONE)
    with pytest.raises(FileFormatError, match="it has no keyed seal, and a key is set"):
        opened(data)


def test_with_a_key(key, monkeypatch):
    key(ONE)
    data = seal(PARTS, "click model")
    assert opened(data) == PARTS
    assert seal(PARTS, "click model") == data
    key(TWO)
    with pytest.raises(FileFormatError, match="sealed with another key"):
        opened(data)
    monkeypatch.delenv("UNTILT_SEAL_KEY")
    assert opened(data) == PARTS  # the checksum alone


def test_keys_are_changed_one_after_the_other(key):
    key(ONE)
    old = seal(PARTS, "ranker")
    key(f"{TWO} {ONE}")
    assert opened(old) == PARTS
    new = seal(PARTS, "ranker")
    key(TWO)
    assert opened(new) == PARTS
    with pytest.raises(FileFormatError, match="another key"):
        opened(old)


def test_a_key_in_a_file(tmp_path, monkeypatch, key):
    (tmp_path / "key").write_text(f"{ONE}\n")
    monkeypatch.setenv("UNTILT_SEAL_KEY_FILE", str(tmp_path / "key"))
    data = seal(PARTS, "ranker")
    monkeypatch.delenv("UNTILT_SEAL_KEY_FILE")
    key(ONE)
    assert opened(data) == PARTS


def test_whoever_has_no_key_changes_nothing(key):
    """Every byte before the checksum, under a checksum made anew."""
    key(ONE)
    data = seal(PARTS, "ranker")
    assert len(data) < 600
    for at in range(len(data) - 64):
        changed = bytearray(data)
        changed[at] ^= 1
        changed[-64:] = hashlib.sha256(changed[:-64]).hexdigest().encode()
        with pytest.raises(FileFormatError):
            opened(bytes(changed))


def test_a_keyed_seal_of_another_file_does_not_fit(key):
    key(ONE)
    one, two = seal(PARTS, "ranker"), seal({**PARTS, "a": b"CONTENT"}, "ranker")
    mark = b"hmac-sha256 "
    at = one.index(mark) + len(mark)
    mixed = bytearray(two)
    start = two.index(mark) + len(mark)
    mixed[start : start + 64] = one[at : at + 64]
    mixed[-64:] = hashlib.sha256(mixed[:-64]).hexdigest().encode()
    with pytest.raises(FileFormatError, match="another key"):
        opened(bytes(mixed))


@pytest.mark.parametrize("wrong", ["", "short", " ", f"{ONE} short"])
def test_keys_that_are_none(key, wrong):
    key(wrong)
    with pytest.raises(OptionError, match="UNTILT_SEAL_KEY must hold keys of at least 32"):
        seal(PARTS, "ranker")


def test_a_key_file_that_is_none(monkeypatch, key, tmp_path):
    monkeypatch.setenv("UNTILT_SEAL_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(OptionError, match="the file named by UNTILT_SEAL_KEY_FILE cannot be read"):
        seal_keys()
    key(ONE)
    with pytest.raises(OptionError, match="both set"):
        seal_keys()


def test_the_key_itself_is_never_told(key):
    key("secret")
    with pytest.raises(OptionError) as error:
        seal_keys()
    assert "secret'" not in str(error.value)
    assert "Got one of 6" in str(error.value)
