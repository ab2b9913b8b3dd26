"""What is expected of assignments that nobody has measured: a Gaussian process over the choices of a space.

Every parameter is one axis. Two choices of a parameter that counts (lengths, sizes, numbers of layers) are as far apart
as their places in order; any others are one apart, and so is a parameter that applies from one that does not. The
covariance of two assignments is

    s² exp(-sum_k w_k d_k) + b sum_k w_k (1 - d_k)

which is positive definite, since each d_k can be embedded in L1. The second term says that choices have effects of
their own, whatever the others are: on times these mostly multiply, so that logarithms add up, and a combination that
nobody has tried is expected to be what its choices were worth elsewhere. The first is what is particular to
combinations. One weight for each axis is learned (automatic relevance): a parameter that makes no difference gets a
weight near 0, and what is known of one of its choices is known of all. Weights are the most likely ones a posteriori,
under broad log-normal priors, so that three measurements give an answer as well as three hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workbench.space.space import Assignment, SearchSpace

Codes = npt.NDArray[np.int64]
"""[n, parameters]: the place of the choice, or -1 where the parameter does not apply."""
Floats = npt.NDArray[np.float64]

_PRIOR_WEIGHT, _PRIOR_WEIGHT_SD = np.log(0.3), 1.5
_PRIOR_SCALE_SD = 1.0
_PRIOR_OWN, _PRIOR_OWN_SD = np.log(0.5), 1.5
_PRIOR_NOISE, _PRIOR_NOISE_SD = np.log(1e-3), 2.0
_STEPS = 60
_FEWEST = 3
_MOST = 128
"""Measurements that weights are learned from, evenly out of all: each step takes the third power of their number. What
is predicted rests on all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """How the parameters of a space become axes: their choices, and whether these have an order."""

    names: tuple[str, ...]
    places: tuple[dict[object, int], ...]
    ordered: tuple[bool, ...]

    def codes(self, assignments: Sequence[Assignment]) -> Codes:
        """[n, parameters]; raises KeyError for a choice that the space does not have."""
        return np.array(
            [
                [
                    places[_key(a[name])] if name in a else -1
                    for name, places in zip(self.names, self.places, strict=True)
                ]
                for a in assignments
            ],
            dtype=np.int64,
        ).reshape(len(assignments), len(self.names))

    def distances(self, a: Codes, b: Codes) -> Floats:
        """[parameters, len(a), len(b)], each within 0 and 1."""
        return np.stack([self._distance(k, a, b) for k in range(len(self.names))])

    def weighted(self, a: Codes, b: Codes, weights: Floats) -> Floats:
        """[len(a), len(b)]: the sum of all axes, each by its weight, without all of them in memory."""
        total = np.zeros((len(a), len(b)))
        for k in range(len(self.names)):
            total += weights[k] * self._distance(k, a, b)
        return total

    def _distance(self, k: int, a: Codes, b: Codes) -> Floats:
        left, right = a[:, k][:, None], b[:, k][None, :]
        apart = (left != right).astype(np.float64)
        if self.ordered[k]:
            both = (left >= 0) & (right >= 0)
            apart = np.where(both, np.abs(left - right) / (len(self.places[k]) - 1), apart)
        return np.asarray(apart, dtype=np.float64)


def axes_of(space: SearchSpace) -> Axes:
    """The axes of a space's parameters; those with three or more numbers in rising or falling order are ordered."""
    return Axes(
        names=tuple(p.name for p in space.parameters),
        places=tuple({_key(choice): place for place, choice in enumerate(p.choices)} for p in space.parameters),
        ordered=tuple(_in_order(p.choices) for p in space.parameters),
    )


def _key(choice: object) -> object:
    return (type(choice).__name__, choice)  # True and 1 are different choices


def _in_order(choices: Sequence[object]) -> bool:
    numbers = [float(c) for c in choices if isinstance(c, int | float) and not isinstance(c, bool)]
    return len(numbers) == len(choices) > 2 and (numbers == sorted(numbers) or numbers == sorted(numbers)[::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """A fitted process.

    Attributes:
        weights: of each axis; 0 for one that makes no difference. scale, own: s² and b.
        left: standard deviation of what the choices do not explain, beyond the known errors.
    """

    axes: Axes
    codes: Codes
    weights: Floats
    scale: float
    own: float
    centre: float
    spread: float
    left: float
    _solved: Floats
    _inverse: Floats

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and standard deviation [n] of the quantity itself, without the noise of a single measurement."""
        covariance = self._covariance(codes, self.codes)
        mean = covariance @ self._solved
        before = self.scale + self.own * self.weights.sum()
        variance = before - ((covariance @ self._inverse) * covariance).sum(axis=1)
        return self.centre + self.spread * mean, self.spread * np.sqrt(np.maximum(variance, 1e-12))

    def _covariance(self, a: Codes, b: Codes) -> Floats:
        apart = self.axes.weighted(a, b, self.weights)
        return np.asarray(self.scale * np.exp(-apart) + self.own * (self.weights.sum() - apart))


def fit(axes: Axes, codes: Codes, values: Floats, noise: Floats) -> Surrogate:
    """The most likely process given measurements; deterministic.

    Args:
        codes: [n, parameters]. values: [n]. noise: [n], standard errors of the values, 0 where none is known;
            what is left over is learned.

    Raises:
        ValueError: fewer than three measurements, or one that is not finite.
    """
    from scipy.optimize import minimize  # half a second that commands without a search need not spend

    if len(values) < _FEWEST or not np.isfinite(values).all():
        raise ValueError(f"{len(values)} measurements, all finite: {bool(np.isfinite(values).all())}")
    centre, spread = float(np.mean(values)), float(np.std(values)) or 1.0
    y, known_noise = (values - centre) / spread, (np.nan_to_num(noise, posinf=0.0) / spread) ** 2
    some = np.unique(np.linspace(0, len(y) - 1, min(len(y), _MOST)).round().astype(np.int64))
    found = minimize(
        _loss,
        np.array([*[_PRIOR_WEIGHT] * len(axes.names), 0.0, _PRIOR_OWN, _PRIOR_NOISE]),
        args=(axes.distances(codes[some], codes[some]), y[some], known_noise[some]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-9.0, 4.0)] * len(axes.names) + [(-7.0, 3.0), (-7.0, 3.0), (-14.0, 1.0)],
        options={"maxiter": _STEPS},
    )
    scale, own, left = (float(np.exp(each)) for each in found.x[-3:])
    process = Surrogate(
        axes=axes,
        codes=codes,
        weights=np.exp(found.x[:-3]),
        scale=scale,
        own=own,
        centre=centre,
        spread=spread,
        left=spread * left**0.5,
        _solved=np.empty(0),
        _inverse=np.empty(0),
    )
    covariance = process._covariance(codes, codes) + np.diag(known_noise + left + 1e-9)
    inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    return replace(process, _solved=inverse @ y, _inverse=inverse)


def _loss(theta: Floats, apart: Floats, y: Floats, noise: Floats) -> tuple[float, Floats]:
    """Minus the log posterior and its gradient (Rasmussen and Williams, "Gaussian Processes for Machine Learning",
    2006, equations 2.30 and 5.9)."""
    weights, (scale, own, left) = np.exp(theta[:-3]), np.exp(theta[-3:])
    distance = np.tensordot(weights, apart, axes=1)
    together = scale * np.exp(-distance)
    alone = own * (weights.sum() - distance)
    covariance = together + alone + np.diag(noise + left + 1e-9)
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(theta)
    inverse = np.linalg.inv(covariance)
    solved = inverse @ y
    centres = np.array([*[_PRIOR_WEIGHT] * len(weights), 0.0, _PRIOR_OWN, _PRIOR_NOISE])
    sds = np.array([*[_PRIOR_WEIGHT_SD] * len(weights), _PRIOR_SCALE_SD, _PRIOR_OWN_SD, _PRIOR_NOISE_SD])
    prior = (theta - centres) / sds
    loss = 0.5 * float(y @ solved) + float(np.sum(np.log(np.diag(factor)))) + 0.5 * float(prior @ prior)
    inner = inverse - np.outer(solved, solved)
    each = own * inner
    by_parameter = weights * (each.sum() - np.tensordot(apart, inner * together + each, axes=2))
    by_size = [np.sum(inner * together), np.sum(inner * alone), left * np.trace(inner)]
    return loss, 0.5 * np.concatenate([by_parameter, by_size]) + prior / sds
