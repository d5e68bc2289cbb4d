"""What a run has spent and whether it may spend more."""

from __future__ import annotations

from dataclasses import dataclass

from lamps.types import Budget


@dataclass(slots=True)
class Spent:
    """What a run has spent, over all its resumes; the same four amounts as `Budget`."""

    wall_s: float = 0.0
    device_s: float = 0.0
    landmarks: int = 0
    trials: int = 0

    def used_share(self, budget: Budget) -> float:
        """Largest used share of any bound; 0 without a bound.

        Example:
            >>> Spent(landmarks=5, wall_s=1).used_share(Budget(landmarks=10, wall_s=100))
            0.5
        """
        shares = [
            getattr(self, name) / bound
            for name, bound in budget.as_dict().items()
            if bound is not None
        ]
        return max(shares, default=0.0)

    def exhausted(self, budget: Budget) -> str | None:
        """Which bound is used up, in words; None while all hold.

        The number of trials never ends a run: started trials may go on, see `may_start_trial`.
        """
        for name, words in (
            ("wall_s", "wall seconds"),
            ("device_s", "device seconds"),
            ("landmarks", "landmarks"),
        ):
            bound = getattr(budget, name)
            if bound is not None and getattr(self, name) >= bound:
                return f"budget used up: {bound:g} {words}"
        return None

    def may_start_trial(self, budget: Budget) -> bool:
        """Whether another candidate may get its first landmark."""
        return budget.trials is None or self.trials < budget.trials
