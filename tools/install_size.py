"""How large an environment is, package by package; fails where it is larger than it may be.

    python tools/install_size.py build/release/plain --most 600

Sizes are those of the disk (as `du -sm` has them), in MiB, compiled Python files included.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SHOWN = 1  # packages from so many MiB on have a line of their own
# Folders that belong to a package of another name.
BESIDE = {"_duckdb": "duckdb", "_distutils_hack": "setuptools", "pkg_resources": "setuptools"}


def all_below(folder: Path) -> Iterator[Path]:
    """Every file and folder, at any depth."""
    for root, folders, names in os.walk(folder):
        yield from (Path(root, name) for name in (*folders, *names))


def package_of(path: Path, site: Path) -> str:
    """The package that a file of an environment counts for."""
    if site not in path.parents:
        return "Python's own"
    top = path.relative_to(site).parts[0]
    for end in (".dist-info", ".libs", ".py", ".so"):
        top = top.partition(end)[0]
    name = top.partition("-")[0].partition(".")[0].lower()
    return BESIDE.get(name, name)


def sizes(environment: Path) -> Counter[str]:
    """Bytes on the disk by package, folders included; a file with several names counts once."""
    site = next(environment.glob("lib/python*/site-packages"))
    seen: set[tuple[int, int]] = set()
    found: Counter[str] = Counter()
    for path in all_below(environment):
        stat = path.lstat()
        if (stat.st_dev, stat.st_ino) not in seen:
            seen.add((stat.st_dev, stat.st_ino))
            found[package_of(path, site)] += stat.st_blocks * 512
    return found


def main() -> None:
    """Print the sizes; end with 1 where they are too many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--most", type=float, help="MiB that it may have")
    given = parser.parse_args()
    found = sizes(given.environment)
    mib = {name: size / 2**20 for name, size in found.most_common()}
    for name, size in mib.items():
        if size >= SHOWN:
            sys.stdout.write(f"{size:7.0f}  {name}\n")
    total = sum(mib.values())
    sys.stdout.write(f"{total:7.0f}  MiB in all\n")
    if given.most is not None and total > given.most:
        sys.exit(f"that is more than {given.most:g} MiB: what is new, and who needs it?")


if __name__ == "__main__":
    main()
