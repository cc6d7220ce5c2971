"""Trust bias by EM: users click on the top because it is the top."""

from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import FeatureArray, FloatArray
from untilt.bias.curve import PositionBias
from untilt.bias.em.affine import AffineFit
from untilt.bias.em.documents import FLOOR
from untilt.bias.em.em_estimator import EMEstimator, relevance_assumed, require_first_clicked
from untilt.bias.em.mixture import MixtureFit, mixture_em, uncertainty_of_mixture
from untilt.bias.em.strata import StratifiedFit, uncertainty_of_strata, widened
from untilt.bias.em.trust_curves import AffineCurves, TrustAnchor, anchor_jacobian, re_anchored
from untilt.bias.estimator import counts_to
from untilt.bias.given import Examination, as_position_bias
from untilt.bias.log_ratios import Uncertainty
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError, OptionError
from untilt.facts import Fact, joined

# Without an anchor these shares of the documents, by relevance, are gamma 0 and gamma 1.
LEAST_RELEVANT, MOST_RELEVANT = 0.01, 0.99


@method(
    "bias", "trust-em", title="Trust-bias EM", order=31, rests_on="relevance model",
    takes=("relevance", "seed"), reference="agarwal2019trust",
    note="examination with the click noise eps+ and eps- of each position, by EM",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class TrustEM(EMEstimator):
    r"""EM for P(click) = theta_k (eps+_k gamma + eps-_k (1 - gamma)) = alpha_k gamma + beta_k.

    alpha_k = theta_k (eps+_k - eps-_k), beta_k = theta_k eps-_k ([agarwal2019trust]_,
    [vardasbi2020affine]_). What clicks identify of this, and what not:

    - the affine map from a document's click probability at position 1 to the one at position k is
      identified: `curves_.relative()`;
    - alpha and beta are identified up to the scale of relevance (`AffineCurves` has the algebra).
      `anchor` gives that scale: then alpha and beta are estimates of the true ones. Without it the
      scale is a convention: of the fitted documents, gamma 0 is the 1% quantile and gamma 1 the
      99% quantile. Rankers need no anchor: (click - beta_k) / alpha_k is unbiased for a relevance
      that orders documents the same way, on any scale;
    - theta, eps+ and eps- apart from their products are not identified at all. `bias_` has the
      same eps+ everywhere and theta_1 = 1, unless `examination` is given. Its alpha and beta
      (`bias_.affine()`) do not depend on this choice.

    "keep eps+ > eps-": alpha is kept above 0; the mirror image (relevant taken for irrelevant) fits
    as well.

    Relevance comes from features or counts as in `RegressionEM`. Trust bias asks for more: with
    counts about 100 sessions per query (alpha_5 to 6%; to 1% with 1000), with features about 500
    queries (docs/estimators/trust-em.md).

    Fitted: `bias_` (with eps_plus, eps_minus), `curves_` (alpha, beta and their errors),
    `relevance_` (documents,) gamma, NaN where nothing is known, `history_`.

    Parameters
    ----------
    anchor : `TrustAnchor(relevant, irrelevant, position)`, click rates that are known
    examination : theta where it is known from elsewhere: any bias, or an array
    relevance, depth, level, tolerance, max_steps, n_trees, learning_rate, n_leaves,
    min_data_in_leaf, folds, early_stopping, n_bootstrap, n_threads, seed : as in `RegressionEM`
    """

    curves_: AffineCurves = field(init=False)

    anchor: TrustAnchor | None = None
    examination: Examination | npt.ArrayLike | None = None
    tolerance: float = 1e-2
    max_steps: int = 10_000

    def _estimate(self, log: ClickLog) -> PositionBias:
        self._check_options()
        features, cells = self._features(log), counts_to(log, self.depth)
        self._check_anchor(cells.depth)
        require_first_clicked(cells)
        if features is None:
            cells = self._counted(cells, clicked=False)
        fit = self._fit(cells, features)
        affine, self.history_ = fit.affine, fit.history
        documents = fit.learned if isinstance(fit, StratifiedFit) else affine
        anchor = _convention(documents) if self.anchor is None else self.anchor
        _require_slope(affine, anchor)
        errors = self._uncertainty(cells, features, fit, anchor)
        self.curves_ = AffineCurves(
            *re_anchored(affine.alpha, affine.beta, anchor), errors.covariance, anchor
        )
        self.relevance_ = self._relevance_of(log, cells, _rescaled(documents, anchor))
        return self._bias(joined(fit.status, errors.rule), by_features=features is not None)

    def _fit(
        self, cells: PositionCounts, features: FeatureArray | None
    ) -> MixtureFit | StratifiedFit:
        if features is None:
            return mixture_em(cells, tolerance=self.tolerance, max_steps=self.max_steps)
        return self._by_features(cells, features, trust=True)

    def _uncertainty(
        self,
        cells: PositionCounts,
        features: FeatureArray | None,
        fit: MixtureFit | StratifiedFit,
        anchor: TrustAnchor,
    ) -> Uncertainty:
        """(2K, 2K) covariance of alpha and beta on the anchor's scale."""
        if self.n_bootstrap:
            return self._resampled(cells, lambda drawn: self._curve(drawn, features, anchor))
        alpha, beta = fit.affine.alpha, fit.affine.beta
        estimated = np.tile((alpha > FLOOR) & (cells.by_position(cells.clicks) > 0), 2)
        jacobian = anchor_jacobian(alpha, beta, anchor)
        # The scale is free where relevance comes from the same clicks: the anchor holds it.
        estimated[[anchor.position - 1, cells.depth + anchor.position - 1]] = False
        if isinstance(fit, StratifiedFit):
            # Coarse strata may leave no slope at the anchor: then they say nothing.
            with np.errstate(divide="ignore", invalid="ignore"):
                fine, coarse = (
                    np.concatenate(re_anchored(each.alpha, each.beta, anchor))
                    for each in (fit.affine, fit.coarse)
                )
                change = np.where(estimated, coarse - fine, 0)
            return widened(uncertainty_of_strata(cells, fit, estimated, jacobian), change)
        return uncertainty_of_mixture(cells, fit, estimated, jacobian)

    def _curve(
        self, cells: PositionCounts, features: FeatureArray | None, anchor: TrustAnchor
    ) -> FloatArray:
        affine = self._fit(cells, features).affine
        return np.concatenate(re_anchored(affine.alpha, affine.beta, anchor))

    def _bias(self, status: Fact, *, by_features: bool) -> PositionBias:
        curves = self.curves_
        # An estimate a little below 0 is noise: no irrelevant document is clicked less than never.
        beta = np.maximum(curves.beta, 0)
        relevant = np.maximum(curves.alpha + beta, FLOOR)
        theta, covariance = self._examination(relevant)
        return PositionBias(
            theta,
            covariance=covariance,
            eps_plus=relevant / theta,
            eps_minus=beta / theta,
            method=f"TrustEM ({'features' if by_features else 'counts'})",
            assumes=(
                Fact("bias.trust-model"),
                relevance_assumed(by_features),
                *self._conventions(),
            ),
            status=status,
            relative=self.anchor is None,
            level=self.level,
        )

    def _examination(self, relevant: FloatArray) -> tuple[FloatArray, FloatArray]:
        """theta with its covariance: as given, else so that eps+ is the same everywhere."""
        depth = len(relevant)
        if self.examination is not None:
            known = as_position_bias(self.examination, depth)
            return known.at(np.arange(1, depth + 1)), np.zeros((depth, depth))
        theta = relevant / relevant[0]
        jacobian = np.eye(depth)
        jacobian[:, 0] -= theta
        jacobian = np.hstack([jacobian, jacobian]) / relevant[0]
        return theta, jacobian @ self.curves_.covariance @ jacobian.T

    def _conventions(self) -> tuple[Fact, Fact]:
        """What sets the scale of relevance, and what the scale of examination."""
        scale = "bias.scale-convention" if self.anchor is None else "bias.scale-given"
        theta = "bias.even-eps-plus" if self.examination is None else "bias.examination-given"
        return Fact(scale, **asdict(self.curves_.anchor)), Fact(theta)

    def _check_anchor(self, depth: int) -> None:
        if self.anchor is None:
            return
        if not isinstance(self.anchor, TrustAnchor):
            raise OptionError(
                "anchor must be a TrustAnchor(relevant, irrelevant, position) or None. "
                f"Got {self.anchor!r} instead."
            )
        self.anchor.check(depth)


def _convention(affine: AffineFit) -> TrustAnchor:
    """Position 1's click probabilities of the 1% and 99% documents by relevance."""
    low, high = np.quantile(affine.gamma, [LEAST_RELEVANT, MOST_RELEVANT])
    at_first = affine.alpha[0] * np.array([low, high]) + affine.beta[0]
    irrelevant, relevant = np.clip(at_first, 0, 1)
    return TrustAnchor(relevant=float(relevant), irrelevant=float(irrelevant))


def _require_slope(affine: AffineFit, anchor: TrustAnchor) -> None:
    """Raise where clicks at the anchor's position do not depend on relevance: no scale."""
    if affine.alpha[anchor.position - 1] > FLOOR and anchor.relevant > anchor.irrelevant:
        return
    best = int(np.argmax(affine.alpha)) + 1
    raise IdentifiabilityError(
        f"clicks at position {anchor.position} do not depend on relevance in this log, so it "
        f"cannot set the scale of relevance. Give an anchor at another position, such as {best}: "
        f"TrustEM(anchor=TrustAnchor(relevant=..., irrelevant=..., position={best}))."
    )


def _rescaled(affine: AffineFit, anchor: TrustAnchor) -> FloatArray:
    """gamma on the anchor's scale."""
    r = anchor.position - 1
    at_anchor = affine.alpha[r] * affine.gamma + affine.beta[r]
    return (at_anchor - anchor.irrelevant) / (anchor.relevant - anchor.irrelevant)
