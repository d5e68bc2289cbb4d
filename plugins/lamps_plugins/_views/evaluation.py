"""What knows the truth: the evaluator of a clustering problem, which no method is given.

test_error = 1 - ACC,  test_nmi_loss = 1 - NMI,  test_ari_loss = 1 - ARI,
test_purity_loss = 1 - purity          on all rows, or where labels of some rows steered the
                                       search (labelled track) on the other rows only
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lamps_plugins._views import metrics
from lamps_plugins._views.data import ViewData

__all__ = ["DEV_SHARE", "TRACKS", "Evaluator", "external_losses"]

TRACKS = ("internal", "labelled")
"""What steers a search: a score that needs no labels, or the labels of `DEV_SHARE` of the rows."""

DEV_SHARE = 0.2
"""Share of the rows whose labels the labelled track shows to the search."""

N_RESAMPLES = 200

Labels = NDArray[np.int64]


def external_losses(truth: Labels, labels: Labels) -> dict[str, float]:
    """``test_*`` losses of a labelling, each 0 for a perfect one."""
    return {
        "test_error": 1.0 - metrics.accuracy(truth, labels),
        "test_nmi_loss": 1.0 - metrics.nmi(truth, labels),
        "test_ari_loss": 1.0 - metrics.ari(truth, labels),
        "test_purity_loss": 1.0 - metrics.purity(truth, labels),
    }


class Evaluator:
    """Truth of a problem, with the rows that it may be asked about.

    Args:
        truth: Class of each row. Shape: [n] int64.
        dev_rows: Rows whose truth steers a search; none on the internal track.
        complete: The views before cells were hidden, scaled as the problem's; None if unknown.
    """

    def __init__(
        self, truth: Labels | None, dev_rows: Labels, complete: ViewData | None = None
    ) -> None:
        self._truth = None if truth is None else np.array(truth, dtype=np.int64)
        self.dev_rows, self._complete = dev_rows, complete

    @property
    def knows(self) -> bool:
        """Whether there is a truth."""
        return self._truth is not None

    def fingerprint(self) -> str:
        """Hash of the truth."""
        content = b"" if self._truth is None else self._truth.tobytes()
        return hashlib.sha256(content).hexdigest()

    def dev_error(self, labels: Labels, rows: Labels) -> float:
        """1 - ACC on those of some rows whose labels the search may see."""
        assert self._truth is not None
        seen = np.isin(rows, self.dev_rows)
        return 1.0 - metrics.accuracy(self._truth[rows[seen]], labels[seen])

    def test_rows(self, rows: Labels) -> NDArray[np.bool_]:
        """Which of some rows count for a test score. Shape: [len(rows)]."""
        return ~np.isin(rows, self.dev_rows)

    def test_losses(self, labels: Labels, rows: Labels) -> dict[str, float]:
        """See the module."""
        assert self._truth is not None
        counted = self.test_rows(rows)
        return external_losses(self._truth[rows[counted]], labels[counted])

    def test_interval(self, labels: Labels, rows: Labels) -> dict[str, float]:
        """95 % interval of ``test_error`` by a bootstrap of rows, the map of clusters kept."""
        from scipy.optimize import linear_sum_assignment

        assert self._truth is not None
        counted = self.test_rows(rows)
        truth, found = self._truth[rows[counted]], labels[counted]
        size = int(max(truth.max(), found.max())) + 1
        table = np.zeros((size, size), dtype=np.int64)
        np.add.at(table, (found, truth), 1)
        partner = linear_sum_assignment(table, maximize=True)[1]
        wrong = (partner[found] != truth).mean()
        draws = np.random.default_rng(0).binomial(len(truth), wrong, N_RESAMPLES) / len(truth)
        low, high = np.percentile(draws, [2.5, 97.5])
        return {"test_error_low": float(low), "test_error_high": float(high)}

    def constant_losses(self) -> dict[str, float]:
        """Test losses of one cluster for all rows."""
        assert self._truth is not None
        rows = np.arange(len(self._truth))
        return self.test_losses(np.zeros(len(rows), dtype=np.int64), rows)

    def constant_dev_error(self) -> float:
        """``dev_error`` of one cluster for all rows."""
        return self.dev_error(np.zeros(len(self.dev_rows), dtype=np.int64), self.dev_rows)

    def imputation_errors(
        self, imputed: Sequence[NDArray[np.float32]], mask: NDArray[np.bool_], rows: Labels
    ) -> dict[str, float]:
        """``nrmse.VIEW`` on the cells of some rows that were hidden, where they are known.

        Args:
            imputed: Filled views. Shape: V times [len(rows), d_v].
            mask: What was observed. Shape: [n, V].
            rows: Which rows of the problem these are.
        """
        if self._complete is None:
            return {}
        found = {}
        for v, name in enumerate(self._complete.names):
            hidden = ~mask[rows, v]
            if hidden.any() and not hidden.all():
                truth = self._complete.arrays[v][rows]
                found[f"nrmse.{name}"] = metrics.nrmse(imputed[v], truth, hidden)
        return found
