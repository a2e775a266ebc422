"""Reading parts of a video again at the usual rate, where a library holds its key frames only.

Key frames find a video, but say too little to judge it: a clip of ten seconds holds one or two of them, or none. They
tell where in the video the clip may lie. Those parts are decoded and described again when it is compared.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from hapvr.errors import DecodeError
from hapvr.features import Features, join_features
from hapvr.matching import VideoDescription, describe_features
from hapvr.model import Model

MAX_READ = 3
"""Videos that are read closely in one search: the best ones."""
_MAX_PARTS = 3  # of one video
_MARGIN_S = 3.0  # that is read before and after where the query may lie
_MAX_PART_S = 90.0  # of one part; of a longer query or a longer gap between key frames less is read

Times = NDArray[np.float64]


def read_closely(query: VideoDescription, target: VideoDescription, model: Model) -> VideoDescription:
    """The parts of the target that may show the query, with all their frames.

    The target itself where there is nothing to gain: its file is gone, has changed or cannot be read, or its frames
    were taken at the usual rate.
    """
    sampling, times = target.sampling, target.times
    if sampling is None or len(times) < 2 or float(np.median(np.diff(times))) <= 1.5 / sampling.fps:
        return target
    with torch.no_grad():
        matrix = model.similarity.frame_matrix_unchecked(query.descriptors, target.descriptors).float().cpu().numpy()
    found: list[Features] = []
    for start_s, end_s in find_parts(matrix, query.times, times):
        try:
            found.append(model.extractor.extract_file(target.path, start_s=start_s, end_s=end_s).features)
        except DecodeError:
            return target
    features = join_features(found)
    return describe_features(model, features, path=target.path, duration_s=target.duration_s, sampling=sampling)


def find_parts(matrix: NDArray[np.float32], query_times: Times, target_times: Times) -> list[tuple[float, float]]:
    """Where the query may lie in the target: stretches in seconds, in order, which do not overlap.

    Each of the target's frames that are most similar to a frame of the query stands for a part: from where the query
    would begin to where it would end, and to the target's next frame, before which anything may have happened.

    >>> matrix = np.array([[0.9, 0.1, 0.0], [0.0, 0.1, 0.1]], np.float32)  # two query frames, 2 s apart
    >>> find_parts(matrix, np.array([0.0, 2.0]), np.array([60.0, 70.0, 140.0]))
    [(55.0, 73.0), (135.0, 145.0)]

    Args:
        matrix: similarities of frames [Tq, Tt].
        query_times, target_times: seconds, increasing.
    """
    length = min(float(query_times[-1] - query_times[0]), _MAX_PART_S / 2)
    parts: list[tuple[float, float]] = []
    for place in np.argsort(-matrix.max(0), kind="stable"):
        time_s = float(target_times[place])
        if any(start_s <= time_s <= end_s for start_s, end_s in parts):
            continue
        next_s = float(target_times[place + 1]) if place + 1 < len(target_times) else time_s
        end_s = min(max(next_s, time_s + length), time_s + _MAX_PART_S / 2)
        parts.append((max(0.0, time_s - length - _MARGIN_S), end_s + _MARGIN_S))
        if len(parts) == _MAX_PARTS:
            break
    return _merge(parts)


def _merge(parts: list[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start_s, end_s in sorted(parts):
        if merged and start_s <= merged[-1][1] + 1:  # two parts may not share a frame
            merged[-1] = merged[-1][0], max(end_s, merged[-1][1])
        else:
            merged.append((start_s, end_s))
    return merged
