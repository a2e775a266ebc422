"""Whether a device computes what the CPU does: networks are tried on both, with drawn pictures."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from hapvr.errors import ConfigError
from hapvr.features.extractor import RegionExtractor
from hapvr.similarity import VideoSimilarity, pairwise

_PICTURES = 8
_MAX_DISTANCE = 1e-3  # of vectors, 1 - cosine
_MAX_DIFFERENCE = 5e-3  # of similarities


def require_same_answers(
    extractor: RegionExtractor,
    similarity: VideoSimilarity,
    reference_extractor: RegionExtractor,
    reference_similarity: VideoSimilarity,
) -> None:
    """Raise `ConfigError` unless networks give, for drawn pictures, the vectors and scores of reference networks."""
    side = reference_extractor.sampling.crop
    drawn = torch.rand((_PICTURES, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    pictures = (255 * F.interpolate(drawn, (side, side), mode="bilinear")).byte().permute(0, 2, 3, 1).contiguous()
    here, there = extractor(pictures), reference_extractor(pictures)
    distance = 1 - float(F.cosine_similarity(here, there, dim=-1).min())
    videos = ((similarity, here.to(similarity.device)), (reference_similarity, there))
    scores = [pairwise(network, [video], [video.flip(0)]) for network, video in videos]
    with torch.no_grad():
        described = [(network, network.make_descriptors(video)) for network, video in videos]
        matrices = [network.frame_matrix_unchecked(video, video).float().cpu() for network, video in described]
    difference = max(float((one - other).abs().max()) for one, other in (scores, matrices))
    if not (distance <= _MAX_DISTANCE and difference <= _MAX_DIFFERENCE):  # a NaN is no agreement
        raise ConfigError(
            f"Its answers differ from those of the CPU: vectors by {distance:.2g} (1 - cosine), similarities by "
            f"{difference:.2g}."
        )
