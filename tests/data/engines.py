"""Engines to keep a log in: servers and sessions of their own, or the reason why there are none."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

POSTGRES = "/usr/lib/postgresql"


def _found(program: str) -> str | None:
    """A program of PostgreSQL; distributions leave all but `psql` out of the PATH."""
    folders = sorted(Path(POSTGRES).glob("*/bin"), reverse=True) if Path(POSTGRES).exists() else []
    return shutil.which(program) or next(
        (str(folder / program) for folder in folders if (folder / program).exists()), None
    )


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server on loopback, of which nothing is left behind."""
    # Not in a folder of pytest's: those are closed to the user that the server runs as.
    with tempfile.TemporaryDirectory() as folder:
        yield from _postgres(Path(folder))


def _postgres(folder: Path) -> Iterator[str]:
    initdb, server = _found("initdb"), _found("postgres")
    if initdb is None or server is None:
        pytest.skip("no PostgreSQL server on this machine: initdb and postgres are not there")
    who: dict[str, Any] = {}
    if os.geteuid() == 0:  # which PostgreSQL refuses to be
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        who = {"user": owner.pw_uid, "group": owner.pw_gid}
    data = folder / "data"
    subprocess.run(
        [initdb, "-D", data, "-U", "untilt", "--auth=trust", "--no-sync", "--locale=C.UTF-8"],
        check=True, capture_output=True, cwd=folder, timeout=120, **who,
    )  # fmt: skip
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [server, "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1",
         "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **who,
    )  # fmt: skip
    try:
        _wait_for(port, process)
        yield f"postgresql://untilt@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # does not wait for those who are still connected
        process.wait(timeout=60)


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, "the server ended"
        time.sleep(0.2)
    raise AssertionError("the server does not answer")


@contextmanager
def spark(folder: Path) -> Iterator[Any]:
    """A Spark session with two workers in this machine, on loopback."""
    pytest.importorskip("pyspark", reason="needs pyspark: pip install pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is no java on the PATH")
    from pyspark.sql import SparkSession

    # The workers start Python themselves: the same one, with the same packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("untilt")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
