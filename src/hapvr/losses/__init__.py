"""Losses of a score matrix, one file each, and the recipe that adds them up.

Shapes: Q queries, N candidates, P positive video pairs, Tq and Tt frames of query and target.

    loss(scores [Q, N], relevance [Q, N] bool, *, ignore [Q, N] bool = None) -> scalar

- Scores are in [0, 1]: map similarities of [-1, 1] with s / 2 + 1 / 2.
- `ignore` marks entries that are neither positive nor negative, such as the query clip itself. Nothing is inferred from
  a square matrix: with gathered negatives the diagonal is offset, and only the caller knows where it is.
- A query may have any number of positives. Queries without positives are left out of the mean (only `SSHN`, which has
  no use for positives, counts them). If nothing is left the loss is 0, still part of the graph.
- Everything is computed in float32 whatever the autocast, and in float64 for float64 scores.
- `ShapeError` and `DataError` for unusable inputs (NaN is never replaced), `ConfigError` for unusable settings.

Of HAP-VR: `QuadLinearAP`, `FrameQuadLinearAP`, `InfoNCE`, `SSHN`, `RangePenalty`. Those it is compared with: point-wise
`MeanAbsolute`, `MeanSquared`; pair-wise `Contrastive`, `Triplet`, `Circle`; list-wise `FastAP`, `DirAP`, `BlackBoxAP`,
`SmoothAP`. `WeightedLosses` adds terms by a recipe; `build_hapvr_losses` is the paper's.
"""

from hapvr.losses.black_box_ap import BlackBoxAP
from hapvr.losses.circle import Circle
from hapvr.losses.contrastive import Contrastive
from hapvr.losses.dir_ap import DirAP
from hapvr.losses.fast_ap import FastAP
from hapvr.losses.frame_quad_linear_ap import FrameQuadLinearAP
from hapvr.losses.infonce import InfoNCE
from hapvr.losses.mean_absolute import MeanAbsolute
from hapvr.losses.mean_squared import MeanSquared
from hapvr.losses.quad_linear_ap import QuadLinearAP, quad_linear
from hapvr.losses.range_penalty import RangePenalty
from hapvr.losses.recipe import HAPVR_WEIGHTS, TERMS, LossInputs, LossValues, Term, WeightedLosses, build_hapvr_losses
from hapvr.losses.smooth_ap import SmoothAP
from hapvr.losses.sshn import SSHN
from hapvr.losses.triplet import Triplet

__all__ = [
    "HAPVR_WEIGHTS",
    "SSHN",
    "TERMS",
    "BlackBoxAP",
    "Circle",
    "Contrastive",
    "DirAP",
    "FastAP",
    "FrameQuadLinearAP",
    "InfoNCE",
    "LossInputs",
    "LossValues",
    "MeanAbsolute",
    "MeanSquared",
    "QuadLinearAP",
    "RangePenalty",
    "SmoothAP",
    "Term",
    "Triplet",
    "WeightedLosses",
    "build_hapvr_losses",
    "quad_linear",
]
