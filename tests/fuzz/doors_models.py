"""Doors for saved rankers and click models: changed inside and sealed again, or just damaged."""

import json
import random
from pathlib import Path
from typing import Any

from tests.fuzz import mutations as m
from tests.fuzz.targets import target, written


def use_model(model: Any, corpus: Path) -> None:
    """Rankers score, click models predict; what loads is saved and described again."""
    import untilt as ut

    repr(model), model.get_params()
    log = ut.read_log(corpus / "log.parquet", documents=corpus / "documents.parquet")
    if hasattr(model, "click_probability"):
        model.click_probability(log), model.conditional_probability(log)
    else:
        model.predict(log), repr(model.feature_importances_)


def models(corpus: Path, kind: str, rng: random.Random) -> bytes:
    """One of the saved models; trees often, since most of what can go wrong is in their text."""
    files = sorted((corpus / "models" / kind).iterdir())
    trees = [file for file in files if "model.txt" in m.parts_of(file.read_bytes())]
    return rng.choice(files + trees * len(files)).read_bytes()


def changed_model(data: bytes, rng: random.Random) -> bytes:
    """Sealed again after its header, an array or its trees were changed."""
    parts = m.parts_of(data)
    name = rng.choice([*parts, *(["model.txt"] * 2 if "model.txt" in parts else [])])
    kind = rng.randrange(12)
    if kind == 0:
        del parts[name]
    elif kind == 1:
        parts[rng.choice(["odd", "../x", "/x", "untilt.json2", "model.txt"])] = parts[name]
    elif kind == 2:
        parts[name] = m.damaged(parts[name], rng)
    elif kind == 3 and rng.random() < 0.2:
        # Far more than its bytes may unpack to, and yet made in the memory that a worker has.
        parts[name] = b"\x00" * (100 << 20)
    elif name == "model.txt":
        parts[name] = changed_trees(parts[name].decode(), rng).encode("utf-8", "surrogatepass")
    elif name.endswith(".json"):
        parts[name] = m.json_bytes(m.changed(json.loads(parts[name]), rng))
    else:
        parts[name] = m.damaged(parts[name], rng)
    return m.resealed(data, parts)


def changed_trees(text: str, rng: random.Random) -> str:
    """LightGBM's text with other numbers in one of its fields, or with a field or tree gone."""
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 2])):
        fields = [i for i, line in enumerate(lines) if "=" in line]
        if not fields or rng.random() < 0.1:
            return m.reworded(text, rng, " =")
        place = rng.choice(fields)
        name, _, values = lines[place].partition("=")
        words = values.split(" ")
        kind = rng.randrange(6)
        if kind == 0:
            words = words[:-1]
        elif kind == 1:
            words += words[:1]
        elif kind == 2:
            words = [str(rng.randrange(-9, 9)) for _ in words]
        elif kind == 3:
            del lines[place]
            continue
        else:
            words[rng.randrange(len(words))] = rng.choice(
                [
                    str(rng.choice(m.NUMBERS)),
                    rng.choice(["", "nan", "-inf", "x", "1e999"]),
                    "-1",
                    "1000",
                ]
            )
        lines[place] = f"{name}={' '.join(words)}"
    return "\n".join(lines)


def _load_model(kind: str) -> Any:
    def attempt(corpus: Path, folder: Path, rng: random.Random) -> None:
        import untilt as ut

        data = changed_model(models(corpus, kind, rng), rng)
        use_model(ut.load(written(folder / "model.untilt", data)), corpus)

    return attempt


target("ranker, resealed", 18)(_load_model("ranker"))
target("click model, resealed", 8)(_load_model("click model"))


@target("model bytes", 6)
def _model_bytes(corpus: Path, folder: Path, rng: random.Random) -> None:
    import untilt as ut

    data = m.damaged(models(corpus, rng.choice(["ranker", "click model"]), rng), rng)
    if rng.random() < 0.7 and len(data) > 64:
        data = m.with_digest(data)
    use_model(ut.load(written(folder / "model.untilt", data)), corpus)
