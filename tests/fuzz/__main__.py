"""`make fuzz N=10000 SEED=0`: damaged inputs at every door.

python -m tests.fuzz --n 10000 --seed 0
python -m tests.fuzz --seed 0 --only bias.json --case 17     one case, here, with its traceback
"""

import argparse
import json
import random
import shutil
import sys
import time
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.runner import ROOT, cases, fuzz, record, table
from tests.fuzz.targets import all_targets


def main() -> int:
    """Run what was asked for; 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--n", type=int, default=10_000, help="inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=sorted(all_targets()), help="a target")
    parser.add_argument("--case", type=int, help="one case, in this process")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--keep-corpus", action="store_true", help="use the files of the last run")
    given = parser.parse_args()
    good = given.out / "corpus"
    if not (given.keep_corpus and good.is_dir()):
        corpus.build(good, quick=False)
    if given.case is not None:
        return _one(good, given.out / "one", given.only[0], given.case, given.seed)
    start = time.monotonic()
    shutil.rmtree(given.out / "failures", ignore_errors=True)
    work = list(cases(given.n, only=tuple(given.only or ())))
    counts = fuzz(work, seed=given.seed, corpus=good, out=given.out, tell=tell)
    seconds = time.monotonic() - start
    told = json.dumps(record(counts, seed=given.seed, seconds=seconds), indent=1)
    (given.out / "fuzz.json").write_text(told)
    tell(f"\n{table(counts)}\n{seconds:.0f} s, seed {given.seed}; {given.out / 'fuzz.json'}")
    return int(any(count.failed for count in counts.values()))


def tell(text: str) -> None:
    """A line for people, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _one(good: Path, folder: Path, name: str, case: int, seed: int) -> int:
    """The case with its traceback; its input stays in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    all_targets()[name].attempt(good, folder, random.Random(f"{seed}:{name}:{case}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
