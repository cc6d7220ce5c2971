"""Several trainings in one program: each ends where it ends by itself."""

from dataclasses import replace

import pytest
from tests.networks.test_training import LISTS, ROWS, START, Memory, OneByOne, X, squares

from untilt._core import memory
from untilt.errors import MemoryLimitError, OptionError
from untilt.networks import together
from untilt.networks.batches import PaddedRows
from untilt.networks.mlp import Optimiser, jax_modules
from untilt.networks.together import train_together
from untilt.networks.training import NetworkTraining, StoppingRule, Trained


def training(seed=0, rate=0.05, batches=ROWS, **changes):
    options = {"optimiser": Optimiser("adam", rate, "cosine"), "epochs": 6, **changes}
    return NetworkTraining(
        squares(), START, replace(batches, seed=seed), constants={"features": X}, **options
    )


def checked(*trainings):
    """The results together, after each was compared with the one of training alone."""
    results = train_together(trainings)
    for given, found in zip(trainings, results, strict=True):
        alone = given.alone()
        assert isinstance(found, Trained)
        assert (found.epochs, found.steps, found.best_epoch) == (
            alone.epochs, alone.steps, alone.best_epoch,
        )  # fmt: skip
        assert found.status == alone.status
        assert found.losses == pytest.approx(alone.losses, rel=1e-5)
        assert found.watched == pytest.approx(alone.watched, rel=1e-5)
        assert found.params["v"] == pytest.approx(alone.params["v"], rel=1e-5)
    return results


@pytest.fixture
def programs(monkeypatch):
    """How many trainings each program began with."""
    sizes, whole = [], together._in_one_program

    def counted(given):
        sizes.append(len(given))
        return whole(given)

    monkeypatch.setattr(together, "_in_one_program", counted)
    return sizes


def test_each_ends_where_it_ends_alone(programs):
    """Seeds, rates, epochs and data of their own; the last has fewer rows and larger batches."""
    fewer = PaddedRows({name: column[:45] for name, column in ROWS.columns.items()}, 20)
    results = checked(
        training(0),
        training(1),
        training(1, rate=0.2, epochs=3),
        training(0, batches=fewer),
    )
    assert programs == [4]
    assert len({tuple(each.params["v"]) for each in results}) == 4


def test_lists_of_two_lengths_share_a_program_where_their_batches_agree(programs, monkeypatch):
    given = [training(3, 0.05, LISTS), training(3, 0.1, LISTS), training(4, 0.05, LISTS)]
    checked(*given)
    assert programs == [2]
    # On a GPU a step is as long as the longest of its lists.
    monkeypatch.setattr(jax_modules().jax, "default_backend", lambda: "gpu")
    checked(*given)
    assert programs == [2, 3]


def test_each_is_stopped_by_its_own_value(programs):
    """Epochs 3, 12 and 1 are the best: the program shrinks when half have ended."""

    def stopping(target):
        return StoppingRule(lambda params: -abs(float(params["v"][0]) - target), patience=2)

    results = checked(
        training(0, epochs=12, stopping=stopping(0.4)),
        training(1, epochs=12, stopping=stopping(2.0)),
        training(0, epochs=12, stopping=stopping(0.0)),
    )
    assert programs == [3]
    assert len({each.best_epoch for each in results}) == 3
    assert results[2].epochs == 3 < results[0].epochs < results[1].epochs == 12


def test_one_that_diverges_leaves_the_others_alone(programs):
    wild = training(1, optimiser=Optimiser("sgd", 1e30))
    calm = [training(seed, optimiser=Optimiser("sgd", 0.01)) for seed in (0, 1)]
    first, error, second = train_together([calm[0], wild, calm[1]])
    assert programs == [3]
    assert isinstance(error, OptionError)
    with pytest.raises(OptionError) as alone:
        wild.alone()
    assert str(error) == str(alone.value)
    for found, given in zip((first, second), calm, strict=True):
        assert isinstance(found, Trained)
        assert found.params["v"] == pytest.approx(given.alone().params["v"], rel=1e-5)


def test_what_cannot_share_a_program_is_trained_alone(programs, tmp_path):
    """Checkpoints, companions, batches made here, another optimiser."""
    path, companion = tmp_path / "training.npz", Memory()
    odd = [
        training(checkpoint=path),
        training(companion=companion),
        replace(training(), batches=OneByOne(ROWS)),
        training(optimiser=Optimiser("adagrad", 0.05)),
    ]
    results = train_together(odd)
    assert programs == []
    assert all(isinstance(each, Trained) for each in results)
    assert path.exists()
    assert len(companion.seen) == 6


def test_where_memory_is_short_they_are_trained_one_by_one(programs, monkeypatch):
    def none_left(*_):
        raise MemoryLimitError("no room")

    monkeypatch.setattr(memory, "allow", none_left)
    checked(training(0), training(1))
    assert programs == [2]


def test_a_cpu_trains_large_networks_one_by_one(programs, monkeypatch):
    monkeypatch.setattr(together, "CPU_WEIGHTS", 2)
    checked(training(0), training(1))
    assert programs == []
