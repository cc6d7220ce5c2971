"""EM of readers who go down and may leave: the parts that DCM, DBN, SDBN and CCM share."""

from collections.abc import Callable
from typing import Any

from untilt._core.em import EMResult, Step, run_em
from untilt.clickmodels.smoothing import HIGH, LOW

# Steps after which the means of the priors are taken from the fit, and held from then on.
FIRST_ROUND = 20


def fit_chain(
    start: Any,
    priors: Any,
    step_with: Callable[[Any], Step[Any]],
    centred: Callable[[Any, Any], Any],
    *,
    tolerance: float,
    max_steps: int,
    what: str,
) -> tuple[EMResult[Any], Any]:
    """Where EM ended, and the priors it ended with.

    A few steps with priors around counted means; then the means are taken from the fit, so that a
    document with no sessions has the mean of those with many; then on until convergence, so that
    the last round climbs one and the same function.

    Parameters
    ----------
    step_with : priors -> the E and M step with them
    centred : (state, priors) -> the priors around the means of this state
    """
    bounds: dict[str, Any] = {"accelerate": True, "low": LOW, "high": HIGH}
    first = run_em(
        start,
        step_with(priors),
        tolerance=10 * tolerance,
        max_steps=min(FIRST_ROUND, max_steps),
        what=f"{what}, first round",
        **bounds,
    )
    priors = centred(first.state, priors)
    em = run_em(
        first.state,
        step_with(priors),
        tolerance=tolerance,
        max_steps=max_steps,
        what=what,
        **bounds,
    )
    return em, priors
