"""The neural click model: a recurrent network over the positions of a list."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray, handed_over
from untilt._core.grouping import group_equal_lists
from untilt._core.ragged import rows_of_lists
from untilt._core.random import child_generator
from untilt.catalog import method
from untilt.clickmodels.base import ClickModel, Lists
from untilt.clickmodels.recurrent import Pages, Reader, conditional, draw, marginal
from untilt.clickmodels.recurrent_training import ReaderOptions, fit_reader
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, check_choice
from untilt.networks.mlp import normalisation, normalised

DOCUMENTS = ("both", "features", "ids")


@dataclass(frozen=True, eq=False)
class DescribedLists(Lists):
    """Lists with the vectors of their documents.

    document : (rows,) index into vectors (documents of the asked log, m)
    """

    document: IntArray
    vectors: FloatArray

    @property
    def pages(self) -> Pages:
        """As the reader sees them."""
        return Pages(self.indptr, self.position, self.document, self.vectors)


@method(
    "click model", "ncm", title="Neural click model", order=20, needs=("jax",),
    reference="borisov2016neural",
    note="a recurrent network reads the list from the top",
)  # fmt: skip
class NCM(ClickModel):
    r"""The neural click model: P(c_k = 1 | clicks above) from a recurrent state.

    After [borisov2016neural]_. A gated recurrent unit reads the list from the top; at each row it
    takes the document's vector, the position and the click just above, and its state says how
    likely a click is (`untilt.clickmodels.recurrent` has the formula). Nothing is assumed about
    examination: what the clicks above mean is learned, and there is no curve over positions in it.

    A document's vector is v = F x + e: learned from its features x, plus a vector of its own with a
    normal prior of precision `prior_strength`, which draws rare documents to what their features
    say (to 0 without features). A document that was not in the log has e = 0.

    P(c_k = 1) without knowing the clicks is exact for lists of up to `exact_rows` rows (all
    2^(k-1) patterns of clicks above row k; two seconds for a thousand distinct lists of ten),
    and a mean over `n_samples` sampled readings for longer ones.

    Fitted by mini-batches of distinct lists with their counts as weights, put into an order of
    their own first: counts equal repeats, and the order of the log plays no part. Training needs
    JAX (the extra `neural`); prediction is NumPy.

    Learned: `reader_` (the network), `relevance_` (P(click) of a document alone at position 1),
    `losses_` (by epoch), `status_`.

    Parameters
    ----------
    documents : what describes a document: "features", "ids", or "both" (whatever there is)
    width : units of the state; vector_length : of a document's vector
    prior_strength : precision of the prior on e; 0 turns it off
    l2 : precision of a normal prior on the weights of the gates
    epochs, max_steps, batch_size, learning_rate : of the training, whichever ends first; the rate
        falls to 0 on a cosine
    validation, patience : share of the sessions that are held out, if they are 100 or more;
        training ends when their likelihood has not risen for `patience` epochs; the best is kept
    exact_rows, n_samples : see above
    seed : of the training and the sampled readings
    """

    name: ClassVar[str] = "ncm"
    family: ClassVar[str] = "network"
    requires: ClassVar[tuple[str, ...]] = ("jax", "optax")
    quick_up_to: ClassVar[float] = 30_000  # about a minute for the marginals alone

    reader_: Reader
    losses_: tuple[float, ...]
    status_: str

    def __init__(
        self,
        *,
        documents: str = "both",
        width: int = 32,
        vector_length: int = 8,
        prior_strength: float = 1.0,
        l2: float = 1.0,
        epochs: int = 60,
        max_steps: int = 3000,
        batch_size: int = 256,
        learning_rate: float = 0.01,
        validation: float = 0.1,
        patience: int = 5,
        exact_rows: int = 10,
        n_samples: int = 256,
        seed: int = 0,
    ) -> None:
        self.documents = documents
        self.width = width
        self.vector_length = vector_length
        self.prior_strength = prior_strength
        self.l2 = l2
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation = validation
        self.patience = patience
        self.exact_rows = exact_rows
        self.n_samples = n_samples
        self.seed = seed

    def _learn(self, log: ClickLog) -> None:
        self._check_options(log)
        given = self._given_features(log)
        self._mean, self._scale = normalisation(given)
        features = normalised(given, self._mean, self._scale)
        trained = fit_reader(
            log,
            features,
            by_id=self._by_id,
            options=self._options(),
        )
        params = {name: np.asarray(array, np.float64) for name, array in trained.params.items()}
        self.reader_ = Reader.of(params)
        self.losses_, self.status_ = trained.losses, trained.status
        own = params["vectors"] if self._by_id else np.zeros((log.n_documents, self.vector_length))
        self._own, self._by_feature = handed_over(own), handed_over(params["by_feature"])
        vectors = self._vectors(log, np.arange(log.n_documents))
        self.relevance_ = handed_over(self.reader_.first(vectors))
        self.prior_mean_ = float(self.reader_.first(np.zeros((1, self.vector_length)))[0])

    def _lists(self, log: ClickLog) -> DescribedLists:
        lists = super()._lists(log)
        index = np.full(log.n_documents, -1)
        index[log.document] = lists.index
        return DescribedLists(
            **vars(lists), document=log.document, vectors=self._vectors(log, index)
        )

    def _marginal(self, lists: Lists) -> FloatArray:
        assert isinstance(lists, DescribedLists)
        slates = group_equal_lists(lists.indptr, [lists.document, lists.position], [])
        length = np.diff(lists.indptr)[slates.first]
        rows = rows_of_lists(lists.indptr, slates.first)
        indptr = np.concatenate([[0], np.cumsum(length)])
        p = marginal(
            self.reader_,
            Pages(indptr, lists.position[rows], lists.document[rows], lists.vectors),
            exact_rows=self.exact_rows,
            n_samples=self.n_samples,
            seed=child_generator(self.seed, 5),
        )
        return p[rows_of_lists(indptr, slates.group_of_list)]

    def _conditional(self, lists: Lists) -> FloatArray:
        assert isinstance(lists, DescribedLists)
        return conditional(self.reader_, lists.pages, lists.click)

    def _draw(self, lists: Lists, uniform: FloatArray) -> AnyArray:
        assert isinstance(lists, DescribedLists)
        return draw(self.reader_, lists.pages, uniform[:, 0])

    def _vectors(self, log: ClickLog, index: IntArray) -> FloatArray:
        """(documents of the log, m); index -1 for a document without a vector of its own."""
        own = np.append(self._own, np.zeros((1, self._own.shape[1])), axis=0)[index]
        given = self._given_features(log)
        if given.shape[1] != len(self._mean):
            raise OptionError(
                f"this NCM was fitted on {len(self._mean)} features. The log has "
                f"{log.n_features}: bring the same ones, or fit NCM(documents='ids')."
            )
        x = normalised(given, self._mean, self._scale, dtype=np.float64)
        return own + x @ self._by_feature

    def _given_features(self, log: ClickLog) -> FeatureArray:
        if self.documents == "ids" or log.features is None:
            return np.zeros((log.n_documents, 0), dtype=np.float32)
        return log.features

    @property
    def _by_id(self) -> bool:
        return self.documents != "features"

    def _options(self) -> ReaderOptions:
        return ReaderOptions(
            **{name: getattr(self, name) for name in ReaderOptions.__dataclass_fields__}
        )

    def _check_options(self, log: ClickLog) -> None:
        check_choice("documents", self.documents, DOCUMENTS)
        if self.documents == "features" and log.features is None:
            raise OptionError(
                "NCM(documents='features') needs features, and this log has none. Read them with "
                "read_log(..., documents=...), or describe documents by 'ids'."
            )
        for name in ("width", "vector_length", "batch_size", "n_samples"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1. Got {getattr(self, name)} instead.")
        if not 0 <= self.exact_rows <= 20:
            raise OptionError(
                f"exact_rows must be from 0 to 20 (a million patterns). Got {self.exact_rows}."
            )
        if not 0 <= self.validation < 1:
            raise OptionError(f"validation must be from 0 to under 1. Got {self.validation}.")
        if not 0 <= self.l2 < np.inf:
            raise OptionError(f"l2 must be at least 0. Got {self.l2} instead.")
