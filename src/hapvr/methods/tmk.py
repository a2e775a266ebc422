"""TMK: temporal match kernels.

Original: Poullot et al., "Temporal Matching Kernel with Explicit Feature Maps", ACM Multimedia 2015. A video becomes
sums of its frame vectors times cosines and sines of time, for a few periods. From the sums of two videos alone follows
the kernel at every offset between them: its maximum is the score, and where it lies is how they are aligned.

Kept: the von Mises kernel by its first Fourier coefficients, several periods, the maximum over offsets, normalisation
by the kernels of each video with itself.

Adapted: frame vectors are the mean of a frame's region vectors, of unit length. Periods are in seconds, for clips
of seconds to minutes; the original's 2,731 to 14,653 frames at 15 a second suit films. One offset is one stretch: the
overlap of the two videos at the best offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hapvr.config import Within
from hapvr.evaluation.pair_records import Box
from hapvr.features import Features
from hapvr.methods.base import Description, Method, Settings, count_bytes, require_descriptions, take_times
from hapvr.methods.registry import register

_PAIRS = 1 << 12  # pairs whose kernels are evaluated at a time
_SAMPLES = 1 << 12  # of the kernel, for its Fourier coefficients


@dataclass(frozen=True)
class TMKSettings(Settings):
    """The kernel."""

    shortest_s: Annotated[float, Within(0.1)] = 40.0  # the first period; each is 1.6 times as long as the one before
    periods: Annotated[int, Within(1)] = 4
    frequencies: Annotated[int, Within(1)] = 16  # of each period
    sharpness: Annotated[float, Within(0)] = 32.0  # beta of the von Mises kernel
    step_s: Annotated[float, Within(0.01)] = 0.5  # between offsets that are tried

    @property
    def periods_s(self) -> tuple[float, ...]:
        """All periods.

        >>> TMKSettings(shortest_s=10.0, periods=3).periods_s
        (10.0, 16.0, 25.6)
        """
        return tuple(round(self.shortest_s * 1.6**number, 6) for number in range(self.periods))


class BestOffset(NamedTuple):
    """Kernels of pairs: the maximum, and at which offset."""

    score: Tensor  # [Q, N]
    offset_s: Tensor  # [Q, N], seconds by which the target's time is later than the query's


K = TypeVar("K", bound=TMKSettings, covariant=True)


class KernelMethod(Method[K]):
    """A temporal match kernel with given or learnt coefficients: k(u) = sum over f of a_f cos(2 pi f u / period)."""

    localises: bool = True

    def coefficients(self) -> Tensor:
        """a_f of each period, [P, F + 1], not negative."""
        raise NotImplementedError

    def embed(self, frames: Tensor, times: Tensor) -> Tensor:
        """Sums over frames times cosines and sines: [N, T, D] and seconds [N, T] -> [N, P, 2, F + 1, D].

        The squared norms of both videos' sums weigh nothing here: `coefficients` come in when kernels are evaluated, so
        that what is stored does not depend on them.
        """
        turns = self._turns(times)  # [N, P, T, F + 1]
        waves = torch.stack([turns.cos(), turns.sin()], 2)  # [N, P, 2, T, F + 1]
        return torch.einsum("npctf,ntd->npcfd", waves, frames)

    def _turns(self, times: Tensor) -> Tensor:
        periods = torch.tensor(self.settings.periods_s, dtype=times.dtype, device=times.device)
        numbers = torch.arange(self.settings.frequencies + 1, dtype=times.dtype, device=times.device)
        return 2 * torch.pi * times[..., None, :, None] * numbers / periods[:, None, None]

    def pool_frames(self, regions: Tensor) -> Tensor:
        """Frame vectors of unit length: [..., T, R, D] -> [..., T, D]."""
        return F.normalize(regions.mean(-2), dim=-1)

    @torch.no_grad()
    def describe(self, features: Features) -> Description:
        """Sums [P, 2, F + 1, D]."""
        times = take_times(features)
        seconds = torch.from_numpy(times).float().to(self.device)
        values = self.embed(self.pool_frames(self.take_regions(features))[None], seconds[None])[0]
        return Description(values, times, count_bytes(values))

    def evaluate_kernels(self, queries: Tensor, targets: Tensor, offsets_s: Tensor) -> Tensor:
        """The normalised kernel of each pair at each offset, the mean over periods: [Q, ...] x [N, ...] -> [Q, N, O].

        At an offset o it is the sum over frames of <x_t, y_u> k(u - t - o), over sqrt(K(x, x) K(y, y)) at offset 0.
        """
        weights = self.coefficients().to(queries.dtype)  # [P, F + 1]
        same = torch.einsum("qpcfd,npcfd->qnpf", queries, targets)  # cos cos + sin sin: of cos(u - t)
        cross = torch.einsum("qpfd,npfd->qnpf", queries[:, :, 0], targets[:, :, 1])
        cross = cross - torch.einsum("qpfd,npfd->qnpf", queries[:, :, 1], targets[:, :, 0])  # of sin(u - t)
        turns = self._turns(offsets_s)  # [P, O, F + 1]
        kernels = torch.einsum("qnpf,pf,pof->qnpo", same, weights, turns.cos())
        kernels = kernels + torch.einsum("qnpf,pf,pof->qnpo", cross, weights, turns.sin())
        norms = [torch.einsum("qpcfd,qpcfd,pf->qp", one, one, weights).clamp(min=1e-9) for one in (queries, targets)]
        return (kernels / (norms[0][:, None, :, None] * norms[1][None, :, :, None]).sqrt()).mean(2)

    def list_offsets(self, reach_s: float) -> Tensor:
        """The offsets that are tried, [O]: both ways to `reach_s`, or half of the longest period."""
        settings = self.settings
        count = int(min(reach_s, max(settings.periods_s) / 2) / settings.step_s)
        return torch.arange(-count, count + 1, device=self.device) * settings.step_s

    @torch.no_grad()
    def find_offsets(self, queries: Sequence[Description], targets: Sequence[Description]) -> BestOffset:
        """The best offset of each pair and the kernel there, [Q, N] each on the CPU."""
        require_descriptions(queries, targets)
        ends = [torch.tensor([float(one.times[-1]) for one in side], device=self.device) for side in (queries, targets)]
        offsets = self.list_offsets(float(max(side.max() for side in ends)))
        # At an offset below -query or above target the videos do not overlap: what counts depends on the pair alone.
        early = offsets < -ends[0][:, None]  # [Q, O]
        late = offsets > ends[1][:, None]  # [N, O]
        theirs = torch.stack([one.values.to(self.device) for one in targets])
        scores, places = [], []
        step = max(1, _PAIRS // len(queries))
        own = torch.stack([one.values.to(self.device) for one in queries])
        for first in range(0, len(theirs), step):
            kernels = self.evaluate_kernels(own, theirs[first : first + step], offsets)
            apart = early[:, None] | late[None, first : first + step]
            best = kernels.masked_fill(apart, -torch.inf).max(2)
            scores.append(best.values.cpu())
            places.append(offsets[best.indices].cpu())
        return BestOffset(torch.cat(scores, 1).float(), torch.cat(places, 1).float())

    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """See `Method`."""
        return self.find_offsets(queries, targets).score

    def measure_evidence(self, query: Description, target: Description) -> NDArray[np.float64]:
        """The score, [1]."""
        return np.asarray(self.score([query], [target])[0].numpy(), np.float64)

    def locate(self, query: Description, target: Description) -> list[Box]:
        """The overlap of the videos at the best offset, if the kernel there is high enough."""
        found = self.find_offsets([query], [target])
        evidence = self.scale_evidence(np.asarray(found.score[0].numpy(), np.float64))[0]
        if evidence < float(cast(Tensor, self.segment_threshold)):
            return []
        offset = float(found.offset_s)
        start = max(float(query.times[0]), float(target.times[0]) - offset)
        end = min(_find_end(query.times), _find_end(target.times) - offset)
        return [((start, end), (start + offset, end + offset))] if end > start else []


def _find_end(times: NDArray[np.float64]) -> float:
    """When the last frame ends: it stands for as long as the one before it.

    >>> _find_end(np.array([0.0, 0.5])), _find_end(np.array([2.0]))
    (1.0, 3.0)
    """
    return float(times[-1] + (times[-1] - times[-2] if len(times) > 1 else 1.0))


def compute_von_mises(sharpness: float, frequencies: int) -> Tensor:
    """Fourier coefficients a_0 to a_F of (exp(b cos x) - exp(-b)) / (2 sinh b), which is 1 at 0 and 0 at pi.

    >>> sharp = compute_von_mises(32.0, 200)
    >>> round(float(sharp.sum()), 4)                       # all cosines are 1 at x = 0
    1.0
    """
    angle = np.linspace(0, 2 * np.pi, _SAMPLES, endpoint=False)
    low = np.exp(-2 * sharpness)
    values = (np.exp(sharpness * (np.cos(angle) - 1)) - low) / (1 - low) if sharpness else (1 + np.cos(angle)) / 2
    found = np.fft.rfft(values).real[: frequencies + 1] / _SAMPLES
    found[1:] *= 2
    return torch.from_numpy(np.maximum(found, 0.0)).float()


@register
class TMK(KernelMethod[TMKSettings]):
    """Temporal match kernels."""

    name, title, paper_line, supervised_original = "tmk", "TMK", "TMK", True
    settings_type: ClassVar[type[Settings]] = TMKSettings
    trials = ({}, {"sharpness": 8.0}, {"shortest_s": 20.0}, {"frequencies": 32, "sharpness": 64.0})

    def coefficients(self) -> Tensor:
        """The von Mises kernel's, the same of each period."""
        own = compute_von_mises(self.settings.sharpness, self.settings.frequencies)
        return own.to(self.device).expand(self.settings.periods, -1)
