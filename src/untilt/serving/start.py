"""From options to a running server, in one process or several."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from untilt._core.files import append_line, make_folder
from untilt.bias.given import parse_bias
from untilt.errors import OptionError
from untilt.serving.app import LOOPBACK, Server, make_app
from untilt.serving.explore import parse_exploration
from untilt.serving.models import Models, calibration_from, load_model, read_features
from untilt.serving.options import Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette

_VARIABLE = "UNTILT_SERVE"  # how workers hear of the settings
TOKEN = "UNTILT_TOKEN"


def make_server(settings: Settings) -> Server:
    """Read everything that a worker needs; raises an `UntiltError` where something is wrong."""
    parse_exploration(settings.explore, most_lost=settings.most_lost)
    if settings.share + settings.interleave > 1:
        raise OptionError(
            f"the candidate cannot have {settings.share + settings.interleave:g} of the sessions: "
            "--share and --interleave together are at most 1."
        )
    curve = None if settings.curve is None else parse_bias(settings.curve, what="curve")
    calibration = None
    if settings.calibrate is not None:
        if curve is None:
            raise OptionError(
                "the cost of exploration is computed from a log and a curve of examination. Give "
                "the curve too: --curve bias.json."
            )
        calibration = calibration_from(_calibration_log(settings), curve)
    models = Models(settings, calibration)
    names = tuple(dict.fromkeys(name for model in models.all for name in model.names))
    documents = settings.documents
    table = None if documents is None else read_features(Path(documents), names)
    token = _token(settings.token_file)
    # Nothing is written before everything was read.
    folder = Path(settings.log)
    make_folder(folder)
    salt = settings.salt if settings.salt is not None else _own_salt(folder)
    exploration = parse_exploration(settings.explore, salt=salt, most_lost=settings.most_lost)
    models.salt = exploration.salt
    return Server(models, settings, exploration, curve=curve, table=table, token=token)


def _calibration_log(settings: Settings) -> Any:
    from untilt.data.read.read_log import read_log

    assert settings.calibrate is not None
    if settings.documents is not None:
        return read_log(settings.calibrate, documents=settings.documents)
    names = load_model(Path(settings.ranker)).names
    return read_log(settings.calibrate, features=list(names))


def _own_salt(folder: Path) -> str:
    """The salt of this folder: the first that a server wrote, for all workers and later servers."""
    path = folder / "salt"
    if not path.exists() or not path.stat().st_size:
        append_line(path, os.urandom(16).hex())
    return path.read_text(encoding="ascii").split()[0]


def _token(file: str | None) -> str | None:
    token = os.environ.get(TOKEN) if file is None else Path(file).read_text("utf8").strip()
    if token is not None and len(token) < 16:
        raise OptionError(
            "a token needs at least 16 characters that are hard to guess. Make one with: openssl "
            "rand -hex 32."
        )
    return token


def has_token(settings: Settings) -> bool:
    """Whether the server will ask for one."""
    return _token(settings.token_file) is not None


def app_from_environment() -> "Starlette":
    """The application of a worker; `run` says through the environment what it is asked for."""
    return make_app(make_server(msgspec.json.decode(os.environ[_VARIABLE], type=Settings)))


def run(settings: Settings, *, host: str, port: int, workers: int) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what is under way, and end."""
    settings = replace(settings, loopback=host in LOOPBACK)
    if workers == 1:
        serve_app(make_app(make_server(settings)), host=host, port=port)
        return
    make_server(settings).close()  # what is wrong is said once, here
    os.environ[_VARIABLE] = msgspec.json.encode(asdict(settings)).decode()
    serve_app(
        "untilt.serving.start:app_from_environment", host=host, port=port,
        factory=True, workers=workers,
    )  # fmt: skip


def serve_app(app: "Starlette | str", *, host: str, port: int, **more: Any) -> None:
    """Hand an application to uvicorn, with the limits of a server of ours."""
    import uvicorn

    from untilt.serving.connection import Connection

    with _ending_quietly():
        uvicorn.run(
            app,
            host=host,
            port=port,
            http=Connection,
            ws="none",
            log_level="error",  # warnings are what a client may cause
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=10,
            backlog=512,
            lifespan="on",
            **more,
        )


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """The signals that end a server are its own business: they end it well, with exit code 0."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
