"""What the models with P(click) = theta_place gamma_document share: `PBM` and `UBM`."""

import numpy as np

from untilt._core.arrays import FloatArray, IntArray, handed_over
from untilt._core.em import EMResult
from untilt.bias.cells import Cells
from untilt.bias.position_bias import PositionBias
from untilt.clickmodels.base import ClickModel
from untilt.clickmodels.places import PlaceFit, PlaceState, fit_places, place_cells
from untilt.errors import IdentifiabilityError
from untilt.logs.clicklog import ClickLog


class PlaceModel(ClickModel):
    """Options, EM, and a curve over positions that the log may not be able to tell."""

    examination_: FloatArray
    em_: EMResult[PlaceState]
    _bias: PositionBias | IdentifiabilityError

    def __init__(
        self,
        *,
        prior_strength: float = 1.0,
        level: float = 0.95,
        tolerance: float = 1e-3,
        max_steps: int = 1000,
    ) -> None:
        self.prior_strength = prior_strength
        self.level = level
        self.tolerance = tolerance
        self.max_steps = max_steps

    @property
    def bias_(self) -> PositionBias:
        """The curve relative to position 1. Raises where the log cannot compare its positions."""
        if isinstance(self._bias, IdentifiabilityError):
            raise self._bias
        return self._bias

    def _fit_places(self, log: ClickLog, place: IntArray, n_places: int) -> tuple[Cells, PlaceFit]:
        """EM on clicks and impressions per (document, place); sets what documents have learned."""
        cells = place_cells(log, place, n_places)
        fit = fit_places(
            cells,
            prior_strength=self.prior_strength,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            what=type(self).__name__,
        )
        relevance = np.full(log.n_documents, fit.prior_mean)
        relevance[cells.document] = fit.gamma
        self.relevance_, self.prior_mean_ = handed_over(relevance), fit.prior_mean
        self.em_ = fit.em
        return cells, fit
