"""From region vectors to a score: `VideoSimilarity` scores a pair or a batch, `pairwise` many by many.

Reading order: chamfer, spatial, weighting, comparator, network (the score), int8, pairwise, segments, calibration.

One alphabet for shapes throughout the package: N (and M) videos, T frames (Tq of the query, Tt of the target),
R regions of a frame, D dims of a region vector. A packed matrix lays several videos end to end: [H, W] cells.
"""

from hapvr.similarity.chamfer import compute_keep_count, topk_chamfer
from hapvr.similarity.comparator import Comparator
from hapvr.similarity.network import Comparison, Descriptors, SimilarityConfig, VideoSimilarity
from hapvr.similarity.pairwise import pairwise
from hapvr.similarity.segments import Segment, SegmentConfig, find_segments
from hapvr.similarity.spatial import compute_frame_similarities
from hapvr.similarity.weighting import Binarization, RegionAttention

__all__ = [
    "Binarization",
    "Comparator",
    "Comparison",
    "Descriptors",
    "RegionAttention",
    "Segment",
    "SegmentConfig",
    "SimilarityConfig",
    "VideoSimilarity",
    "compute_frame_similarities",
    "compute_keep_count",
    "find_segments",
    "pairwise",
    "topk_chamfer",
]
