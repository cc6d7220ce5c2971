"""Records are read without importing the methods, and agree with the classes that carry them."""

import subprocess
import sys

import pytest

from untilt import catalog
from untilt.errors import OptionError

RECORDS = catalog.methods()


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: f"{r.kind}-{r.name}")
def test_a_record_leads_to_its_class(record):
    target = record.load()
    assert (target.__module__, target.__qualname__) == (record.home, record.target)
    assert catalog.record_of(target).target == record.target


def test_names_are_unique_in_their_kind():
    keys = [(record.kind, record.name) for record in RECORDS]
    assert len(set(keys)) == len(keys)


def test_reading_the_records_imports_no_method():
    code = (
        "from untilt import catalog; catalog.methods(); import sys; print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_wrong_name_gets_the_nearest():
    with pytest.raises(OptionError, match="Did you mean 'prs'"):
        catalog.find("weighting", "psr")
