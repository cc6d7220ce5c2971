"""Result pages of a web search engine as a click log.

    python examples/yandex_pages.py [train.txt.gz [folder]]

Each line of the file is one query in one region, its result pages separated by `;`. A page is

    query_region TAB url,url,... : clicked , clicked , ...

with the clicked urls in time order. A clicked url may be none of the ten shown: such a click has no
position, so it is dropped and counted. A url clicked twice on one page is one click.

With a folder the whole job is done: audit, position bias, click models, and whether the documents
of a query in the order of their own corrected clicks would have been better than what was shown.
There are no features, so no ranker is trained; the report in the folder says so.
"""

import gzip
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import untilt as ut

DEFAULT = Path(__file__).parents[2] / "shared" / "data" / "yandex-sample" / "train.txt.gz"


def read_pages(path: Path, *, in_order: bool = False) -> tuple[ut.ClickLog, int]:
    """The click log, and how many clicks fell on urls that the page does not show.

    The pages of a query stand in the order of time. With `in_order` sessions are not merged, and
    their time is the share of their query's pages that came before.
    """
    columns = ("query_id", "session_id", "doc_id", "position", "click", "timestamp")
    rows: dict[str, list] = {name: [] for name in columns}
    before: Counter[str] = Counter()
    outside = 0
    with gzip.open(path, "rt", encoding="utf8") as file:
        pages = [page for line in file for page in line.split(";") if page.strip()]
    total = Counter(page.strip().partition("\t")[0] for page in pages)
    for session, page in enumerate(pages):
        query, _, rest = page.strip().partition("\t")
        urls, clicks = ([url.strip() for url in part.split(",")] for part in rest.split(":"))
        clicked = [url for url in clicks if url]
        outside += sum(url not in urls for url in clicked)
        rows["query_id"] += [query] * len(urls)
        rows["session_id"] += [session] * len(urls)
        rows["doc_id"] += urls
        rows["position"] += range(1, len(urls) + 1)
        rows["click"] += [url in clicked for url in urls]
        rows["timestamp"] += [before[query] / total[query]] * len(urls)
        before[query] += 1
    return ut.read_log(pa.table(rows), collapse=not in_order), outside


def decide(log: ut.ClickLog, folder: Path, **options: Any) -> ut.RunResult:
    """The main job on these pages; see docs/run.md."""
    return ut.run(log, folder, title="Yandex result pages", **options)


if __name__ == "__main__":
    log, dropped = read_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
    print(log)
    print(f"{dropped} clicks on urls that were not shown were dropped")
    print(log.ctr_by_position())
    if len(sys.argv) > 2:
        print(decide(log, Path(sys.argv[2])))
