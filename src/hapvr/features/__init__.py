"""From pictures to region vectors: pooling of a backbone's maps, PCA whitening, and features and frames at rest.

Shapes: N pictures, T frames of a video, R regions of a picture (grid x grid), C channels, D dimensions after whitening.
"""

from hapvr.features.files import FeatureFile, Features, FeatureWriter
from hapvr.features.packed import PackedFrames, PackedWriter
from hapvr.features.regions import KERNELS, LEAST_SIDE, extract_regions, pool_regions
from hapvr.features.whitening import Whitening, WhiteningConfig, WhiteningFit

__all__ = [
    "KERNELS",
    "LEAST_SIDE",
    "FeatureFile",
    "FeatureWriter",
    "Features",
    "PackedFrames",
    "PackedWriter",
    "Whitening",
    "WhiteningConfig",
    "WhiteningFit",
    "extract_regions",
    "pool_regions",
]
