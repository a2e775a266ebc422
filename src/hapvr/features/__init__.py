"""From pictures to region vectors: pooling of a backbone's maps, PCA whitening, and files of features and frames.

Shapes: N pictures, T frames of a video, R regions of a picture (grid x grid), C channels, D dimensions after whitening.
"""

from hapvr.features.feature_files import FeatureFile
from hapvr.features.feature_writer import FeatureWriter
from hapvr.features.features import Features, join_features, select_frames
from hapvr.features.regions import KERNELS, MIN_SIDE, extract_regions, pool_regions
from hapvr.features.whitening import Whitening, WhiteningConfig, WhiteningFit
from hapvr.video.packed_frames import PackedFrames
from hapvr.video.packed_writer import PackedWriter

__all__ = [
    "KERNELS", "MIN_SIDE", "FeatureFile", "FeatureWriter", "Features", "PackedFrames", "PackedWriter", "Whitening",
    "WhiteningConfig", "WhiteningFit", "extract_regions", "join_features", "pool_regions", "select_frames",
]  # fmt: skip
