"""From pictures to region vectors: pooling of a backbone's maps, and PCA whitening.

Shapes: N pictures, R regions of a picture (grid x grid), C channels, D dimensions after whitening.
"""

from hapvr.features.regions import KERNELS, LEAST_SIDE, extract_regions, pool_regions
from hapvr.features.whitening import Whitening, WhiteningConfig, WhiteningFit

__all__ = [
    "KERNELS",
    "LEAST_SIDE",
    "Whitening",
    "WhiteningConfig",
    "WhiteningFit",
    "extract_regions",
    "pool_regions",
]
