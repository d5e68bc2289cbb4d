"""Large-scale multi-view subspace clustering, blind to groups: the common anchor baseline.

Paper: Kang et al., Large-scale multi-view subspace clustering in linear time, AAAI 2020,
arXiv 1911.09290, section 3. The method of the family ``multi-view-clustering``, unchanged, on data
with groups that it does not look at.
"""

from __future__ import annotations

from lamps.method import MethodSpec, Paper, Tags
from lamps_plugins.multi_view_clustering.lmvsc import Lmvsc


class BlindLmvsc(Lmvsc):
    """Anchor graphs by simplex regression, stacked."""

    spec = MethodSpec(
        family="fair-multi-view-clustering",
        summary="rows as mixtures of anchors in each view, blind to groups",
        paper=Paper(
            title="Large-scale multi-view subspace clustering in linear time",
            arxiv="1911.09290",
            venue="AAAI 2020",
            section="3",
        ),
        tags=Tags(cheap=True, baseline=True),
    )
