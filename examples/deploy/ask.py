"""Visitors of a server: they search, and click what they look at. Standard library and DuckDB.

python ask.py http://127.0.0.1:8080 documents.parquet --token-file token --visits 400
"""

import argparse
import http.client
import json
import random
import time
from pathlib import Path
from urllib.parse import urlsplit

import duckdb

PATIENCE = 60.0  # seconds until the server must be ready


def main() -> None:
    """Wait for the server, then rank and click."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server")
    parser.add_argument("documents", type=Path)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--visits", type=int, default=400)
    given = parser.parse_args()
    headers = {
        "Authorization": f"Bearer {given.token_file.read_text().strip()}",
        "Content-Type": "application/json",
    }
    address = urlsplit(given.server)
    secure = address.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    wait(kind, address.netloc)
    candidates = duckdb.execute(
        "SELECT query_id, list(doc_id ORDER BY doc_id) FROM read_parquet(?) GROUP BY 1 ORDER BY 1",
        [str(given.documents)],
    ).fetchall()
    connection, rng, clicks = kind(address.netloc, timeout=10), random.Random(0), 0

    def post(path: str, body: object) -> dict:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {text.decode()}")
        return json.loads(text)

    for visit in range(given.visits):
        query, documents = rng.choice(candidates)
        asked = {"session": f"visit-{visit}", "query": query, "documents": documents, "size": 10}
        shown = post("/rank", asked)
        events = [
            {"event": f"{visit}-{k}", "list": shown["list"], "document": document}
            for k, document in enumerate(shown["documents"], start=1)
            if rng.random() < 0.5 / k
        ]
        if events:
            post("/feedback", {"events": events})
        clicks += len(events)
    print(f"{given.visits} visits, {clicks} clicks")


def wait(kind: type[http.client.HTTPConnection], netloc: str) -> None:
    """Until /ready answers 200."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        connection = kind(netloc, timeout=2)
        try:
            connection.request("GET", "/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise SystemExit(f"{netloc} was not ready within {PATIENCE:.0f} seconds.")


if __name__ == "__main__":
    main()
