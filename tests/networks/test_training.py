"""The training loop: known minima, early stopping, and checkpoints that resume to the same end."""

from functools import lru_cache

import numpy as np
import pytest

from untilt.errors import FileFormatError, OptionError
from untilt.networks import training
from untilt.networks.batches import PaddedLists, PaddedRows
from untilt.networks.mlp import OPTIMISERS, Optimiser
from untilt.networks.training import StoppingRule, load_checkpoint, train

X = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
TRUE = np.array([2.0, -1.0, 0.5], np.float32)
ROWS = PaddedRows({"row": np.arange(64), "y": X @ TRUE}, 16)
START = {"v": np.zeros(3, np.float32)}


@lru_cache
def squares():
    def loss(params, batch):
        x = batch["features"][batch["row"]]
        return ((x @ params["v"] - batch["y"]) ** 2 * batch["mask"]).sum() / 16

    return loss


def run(**changes):
    given = {"optimiser": Optimiser("adam", 0.05), "epochs": 30, **changes}
    batches = given.pop("batches", ROWS)
    return train(squares(), START, batches, constants={"features": X}, **given)


class OneByOne:
    """The same batches, made here one by one: the slow twin."""

    resident = None

    def __init__(self, batches):
        self.steps_per_epoch, self.epoch = batches.steps_per_epoch, batches.epoch


LISTS = PaddedLists(
    indptr=np.array([0, 3, 5, 12, 20, 21, 34, 50, 64]),
    row_columns={"row": np.arange(64), "y": X @ TRUE},
    batch_size=2,
    lengths=(4, 16),
)


@pytest.mark.parametrize("batches", [ROWS, LISTS], ids=["rows", "lists of two lengths"])
@pytest.mark.parametrize("at_once", [1, 3, 1000])
@pytest.mark.parametrize("max_steps", [None, 9])
def test_many_steps_in_one_call_are_the_steps_one_by_one(monkeypatch, batches, at_once, max_steps):
    monkeypatch.setattr(training, "_MOST_STEPS", at_once)
    options = {"epochs": 4, "max_steps": max_steps, "optimiser": Optimiser("adam", 0.05, "cosine")}
    one_by_one = run(batches=OneByOne(batches), **options)
    together = run(batches=batches, **options)
    assert together.steps == one_by_one.steps
    assert together.losses == pytest.approx(one_by_one.losses, rel=1e-5)
    assert together.params["v"] == pytest.approx(one_by_one.params["v"], rel=1e-5)


class Memory:
    """A companion that adds up what it sees, and may be interrupted."""

    def __init__(self, breaks_at=None):
        self.seen, self.breaks_at = [], breaks_at

    def after_epoch(self, epoch, params):
        if epoch == self.breaks_at:
            raise KeyboardInterrupt
        self.seen.append(float(params["v"][0]))

    def state(self):
        return {"seen": np.array(self.seen)}

    def restore(self, state):
        self.seen = state["seen"].tolist()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_finds_the_line(name):
    rate = {"adagrad": 0.5, "sgd": 0.1, "momentum": 0.02}.get(name, 0.05)
    result = run(optimiser=Optimiser(name, rate, schedule="cosine"), epochs=60)
    assert result.params["v"] == pytest.approx(TRUE, abs=0.05)
    assert isinstance(result.params["v"], np.ndarray)
    assert result.losses[-1] < 0.01 < result.losses[0]
    assert (result.epochs, result.steps) == (60, 240)
    assert (result.status.code, result.status.fields["steps"]) == ("network.trained", 240)


def test_one_step_of_gradient_descent_by_hand():
    batches = PaddedRows({"row": np.arange(64), "y": X @ TRUE}, 64, seed=None)
    result = run(optimiser=Optimiser("sgd", 0.25), epochs=1, batches=batches)
    assert result.losses[0] == pytest.approx(np.sum((X @ TRUE) ** 2) / 16, rel=1e-5)
    assert result.params["v"] == pytest.approx(0.25 * 2 * X.T @ (X @ TRUE) / 16, rel=1e-5)


def test_the_rate_falls_as_a_cosine_and_parts_have_their_own():
    optimiser = Optimiser(learning_rate=0.4, schedule="cosine")
    assert [optimiser.rate(step, 4) for step in range(5)] == pytest.approx(
        0.2 * (1 + np.cos(np.pi * np.arange(5) / 4))
    )
    half = run(optimiser=Optimiser("sgd", 0.25, multipliers=(("v", 0.5),)), max_steps=1)
    whole = run(optimiser=Optimiser("sgd", 0.125), max_steps=1)
    assert half.steps == whole.steps == 1
    assert half.params["v"] == pytest.approx(whole.params["v"])


def test_the_same_seed_the_same_result():
    assert np.array_equal(run().params["v"], run().params["v"])
    other = run(batches=PaddedRows(ROWS.columns, 16, seed=1), epochs=1)
    assert not np.array_equal(run(epochs=1).params["v"], other.params["v"])


def test_the_best_epoch_is_kept_and_training_stops():
    """The value falls from the fourth epoch on."""
    values = iter([0.1, 0.2, 0.5, 0.4, 0.3, 0.45, 0.2])
    result = run(stopping=StoppingRule(lambda _: next(values), patience=3))
    assert result.watched == (0.1, 0.2, 0.5, 0.4, 0.3, 0.45)
    assert (result.epochs, result.best_epoch) == (6, 3)
    assert np.array_equal(result.params["v"], run(epochs=3).params["v"])
    assert result.status.code == "network.stopped"
    assert result.status.fields == {"epochs": 6, "steps": 24, "best_epoch": 3}
    smaller = iter([3.0, 2.0, 4.0])
    result = run(stopping=StoppingRule(lambda _: next(smaller), None, False), epochs=3)
    assert (result.epochs, result.best_epoch) == (3, 2)


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_what_was_cut_short_goes_on_to_the_same_end(tmp_path, name):
    path = tmp_path / "training.npz"
    optimiser = Optimiser(name, 0.01, schedule="cosine")
    given = {"optimiser": optimiser, "epochs": 8, "fingerprint": "this one"}
    judge = StoppingRule(lambda params: -abs(float(params["v"][0]) - 0.3), None)
    whole_memory, memory = Memory(), Memory(breaks_at=5)
    whole = run(companion=whole_memory, stopping=judge, **given)
    with pytest.raises(KeyboardInterrupt):
        run(companion=memory, stopping=judge, checkpoint=path, **given)
    assert load_checkpoint(path, fingerprint="this one").numbers["epoch"] == 4
    resumed_memory = Memory()
    resumed = run(companion=resumed_memory, stopping=judge, checkpoint=path, **given)
    assert np.array_equal(resumed.params["v"], whole.params["v"])
    assert resumed.losses == whole.losses
    assert resumed.watched == whole.watched
    assert resumed.status == whole.status
    assert resumed_memory.seen == whole_memory.seen
    # Once more is nothing more to do.
    assert run(companion=Memory(), stopping=judge, checkpoint=path, **given).steps == whole.steps


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "training.npz"
    run(epochs=1, checkpoint=path, fingerprint="a")
    with pytest.raises(FileFormatError, match="belongs to another training"):
        run(epochs=2, checkpoint=path, fingerprint="b")
    with pytest.raises(FileFormatError, match="another shape"):
        train(squares(), {"v": np.zeros(4, np.float32)}, ROWS, optimiser=Optimiser(), epochs=2,
              checkpoint=path, fingerprint="a")  # fmt: skip
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FileFormatError, match="no checkpoint that can be read"):
        run(epochs=2, checkpoint=path, fingerprint="a")
    np.savez(path, other=np.ones(3))
    with pytest.raises(FileFormatError, match="no checkpoint that can be read"):
        run(epochs=2, checkpoint=path, fingerprint="a")
    assert [entry.name for entry in tmp_path.iterdir()] == ["training.npz"]


def test_a_checkpoint_is_never_unpickled(tmp_path):
    path = tmp_path / "training.npz"
    np.savez(path, head=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FileFormatError, match="no checkpoint that can be read"):
        run(epochs=2, checkpoint=path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"optimiser": Optimiser("adm")}, r"optimiser must be one of .* Did you mean 'adam'"),
        ({"optimiser": Optimiser(learning_rate=-1)}, "learning_rate must be above 0"),
        ({"optimiser": Optimiser(schedule="step")}, "schedule must be one of"),
        ({"optimiser": Optimiser("sgd", 1e30), "epochs": 5}, r"the loss became .* learning_rate"),
    ],
)
def test_what_cannot_be_is_told(changes, message):
    with pytest.raises(OptionError, match=message):
        run(**changes)
