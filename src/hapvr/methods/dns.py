"""DnS: the coarse student scores all pairs, the selector says which the fine student scores again.

Original: Kordopatis-Zilos et al., IJCV 2022 (arXiv:2106.13266). A selector network sees the coarse score of a pair and
what the fine descriptors of each video say of themselves, and tells how far the coarse score can be trusted. Of all
pairs, a share given by a budget is scored again, by the fine student.

Kept: both students, a CNN over each video's self-similarity, a perceptron of one hidden layer, its labels (coarse and
fine score differ by more than 0.2), the budget as a share of the pairs.

Adapted: teacher, students and pairs as for the students here. The CNN gives one number a video. The budget holds
for each query: the share of its targets that are scored again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.config import Share, Within
from hapvr.features import Features
from hapvr.methods.base import Description, FitSettings, Method, Report, Settings, count_bytes, take_times
from hapvr.methods.clips import Clips
from hapvr.methods.distillation import TeacherSettings, find_teacher
from hapvr.methods.dns_coarse import CoarseSettings, CoarseStudent, stretch_cosines
from hapvr.methods.dns_fine import AttentionStudent, BinaryStudent, StudentSettings
from hapvr.methods.fitting import run_steps
from hapvr.methods.registry import register
from hapvr.similarity import Descriptors, pairwise
from hapvr.similarity.comparator import Comparator
from hapvr.training.step import Batch

_HIDDEN = 100
_MIN_FRAMES = 8  # of a self-similarity; shorter videos are repeated


@dataclass(frozen=True)
class SelectSettings(FitSettings, TeacherSettings):
    """The selector, its budget and its training; students have their own settings' defaults."""

    fine: Literal["binary", "attention"] = "binary"
    budget: Share = 0.05  # of the targets of each query that the fine student scores
    min_error: Annotated[float, Within(0)] = 0.2  # from which on a coarse score is wrong
    steps: Annotated[int, Within(1)] = 300
    student_steps: Annotated[int, Within(1)] = 600  # of either student


class Selector(nn.Module):
    """How likely it is that a coarse score is wrong: a logit for each pair."""

    def __init__(self) -> None:
        super().__init__()
        self.self_similarity = Comparator()
        self.layers = nn.Sequential(nn.Linear(3, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))

    def measure(self, matrices: Tensor) -> Tensor:
        """A number for each video, of its self-similarity [N, T, T] with T >= 8: [N]."""
        found: Tensor = torch.tanh(self.self_similarity(matrices).flatten(1).mean(1))
        return found

    def forward(self, coarse: Tensor, queries: Tensor, targets: Tensor) -> Tensor:
        """Logits [Q, N] of coarse scores [Q, N] and the numbers of the videos [Q] and [N]."""
        pairs = torch.stack([coarse, queries[:, None].expand_as(coarse), targets[None].expand_as(coarse)], -1)
        found: Tensor = self.layers(pairs)[..., 0]
        return found


def select_pairs(logits: Tensor, budget: float) -> Tensor:
    """Which pairs are scored again: bool [Q, N], the round(budget N) largest of each row, first ones first.

    What a budget selects, a larger one selects too.

    >>> select_pairs(torch.tensor([[0.1, 0.9, 0.9, 0.2]]), 0.5).int().tolist()
    [[0, 1, 1, 0]]
    """
    count = round(budget * logits.shape[1])
    order = logits.sort(dim=1, descending=True, stable=True).indices[:, :count]
    return torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, True)


@register
class DnS(Method[SelectSettings]):
    """Coarse student, selector, fine student."""

    name, title, supervised_original = "dns", "DnS (coarse, selector, fine)", True
    settings_type: ClassVar[type[Settings]] = SelectSettings
    trials = ({}, {"budget": 0.02}, {"budget": 0.2}, {"fine": "attention"})
    learns: ClassVar[bool] = True
    localises: bool = True

    def __init__(self, dims: tuple[int, int], settings: SelectSettings | None = None) -> None:
        super().__init__(dims, settings)
        own = self.settings
        student = BinaryStudent if own.fine == "binary" else AttentionStudent
        shared = {"teacher": own.teacher, "steps": own.student_steps, "frames": own.frames}
        self.coarse = CoarseStudent(dims, CoarseSettings(**shared, batch=own.batch))  # type: ignore[arg-type]
        self.fine = student(dims, StudentSettings(**shared, batch=own.batch))  # type: ignore[arg-type]
        self.selector = Selector()

    def fit(self, clips: Clips, *, seed: int = 0, report: Report | None = None) -> list[float]:
        """Train the students, then the selector on their scores; the losses are the selector's."""
        settings = self.settings
        teacher = find_teacher(settings.teacher, clips, device=self.device, seed=seed, report=report)
        self.coarse.learn_from(teacher, clips, seed=seed, report=report)
        self.fine.learn_from(teacher, clips, seed=seed, report=report)
        self.coarse.eval().requires_grad_(False)
        self.fine.eval().requires_grad_(False)

        def compute_loss(batch: Batch) -> Tensor:
            with torch.no_grad():
                vectors = self.coarse.embed(batch.regions)
                coarse = stretch_cosines(vectors @ vectors.T)
                described = self.fine.network.make_descriptors_unchecked(batch.regions)
                exact = self.fine.network(described, described).scores
                itself = torch.stack([self._self_similarity(one.as_subclass(Tensor)) for one in described])
            measures = self.selector.measure(itself)
            wrong = ((coarse - exact).abs() > settings.min_error).float()
            return F.binary_cross_entropy_with_logits(self.selector(coarse, measures, measures), wrong)

        losses = run_steps(
            self.selector.parameters(), clips, settings, compute_loss, seed=seed, report=report, name=self.name
        )
        self.requires_grad_(True)
        return losses

    def _self_similarity(self, described: Tensor) -> Tensor:
        """[T, R, D] -> [T', T'], T' at least 8."""
        matrix = self.fine.network.frame_matrix_unchecked(described, described).float()
        places = torch.arange(max(_MIN_FRAMES, len(matrix)), device=matrix.device) % len(matrix)
        return matrix[places][:, places]

    @torch.no_grad()
    def describe(self, features: Features) -> Description:
        """The coarse vector [D]; the fine descriptors, and the selector's number of the video."""
        coarse, fine = self.coarse.describe(features), self.fine.describe(features)
        measure = self.selector.measure(self._self_similarity(fine.values)[None])
        size = coarse.bytes + fine.bytes + count_bytes(measure)
        return Description(coarse.values, take_times(features), size, {"fine": fine.values, "measure": measure})

    @torch.no_grad()
    def score(self, queries: Sequence[Description], targets: Sequence[Description]) -> Tensor:
        """Coarse scores, and fine ones of the pairs that the selector chooses."""
        scores = self.coarse.score(queries, targets)
        numbers = [torch.cat([one.more["measure"].to(self.device) for one in side]) for side in (queries, targets)]
        chosen = select_pairs(self.selector(scores.to(self.device), *numbers), self.settings.budget).cpu()
        for row, query in enumerate(queries):
            places = chosen[row].nonzero()[:, 0].tolist()
            if places:
                described = [Descriptors.of(targets[place].more["fine"].to(self.device)) for place in places]
                own = Descriptors.of(query.more["fine"].to(self.device))
                scores[row, places] = pairwise(self.fine.network, [own], described)[0]
        return scores

    def frame_matrix(self, query: Description, target: Description) -> Tensor:
        """That of the fine student."""
        one, other = (dataclasses.replace(side, values=side.more["fine"]) for side in (query, target))
        return self.fine.frame_matrix(one, other)
