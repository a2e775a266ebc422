"""A recipe of weighted losses: what a training step minimises, written as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.losses._inputs import non_negative_setting
from hapvr.losses.frame_quad_linear_ap import FrameQuadLinearAP
from hapvr.losses.infonce import InfoNCE
from hapvr.losses.quad_linear_ap import QuadLinearAP
from hapvr.losses.range_penalty import RangePenalty
from hapvr.losses.sshn import SSHN

HAPVR_WEIGHTS: Mapping[str, float] = {"frame_ap": 6.0, "video_ap": 4.0, "infonce": 1.0, "sshn": 3.0, "range": 1.0}
"""The weights of the paper's terms (lambda_f, lambda_v, 1, lambda_s, r): their only home."""


@dataclass(frozen=True, eq=False)
class LossInputs:
    """All that one training step has to show to its losses. What no term of the recipe reads may be left out.

    scores, relevance, ignore [Q, N]: scores in [0, 1] (float) and labels (bool), for the levels "video" and "self".
    self_scores [Q]: the score of each query clip with itself, in [0, 1], for the level "self".
    frame_matrices, frame_positive, frame_negative [P, Tq, Tt]: frame similarities and labels of the P positive pairs,
    with frame_query_mask [P, Tq] and frame_target_mask [P, Tt] (True = real), for the level "frame".
    raw, raw_mask: the outputs of psi before they are cut to [-1, 1], and the real ones, for the level "range".
    event_relevance, event_ignore [Q, N]: a wider relevance of the same scores, footage of one event, for "event".
    instant_scores, instant_relevance, instant_ignore [F, G]: similarities of single frames of all clips, in [0, 1], and
    which of them show the same instant, for the level "instant".
    """

    scores: Tensor | None = None
    relevance: Tensor | None = None
    ignore: Tensor | None = None
    self_scores: Tensor | None = None
    frame_matrices: Tensor | None = None
    frame_positive: Tensor | None = None
    frame_negative: Tensor | None = None
    frame_query_mask: Tensor | None = None
    frame_target_mask: Tensor | None = None
    raw: Tensor | None = None
    raw_mask: Tensor | None = None
    event_relevance: Tensor | None = None
    event_ignore: Tensor | None = None
    instant_scores: Tensor | None = None
    instant_relevance: Tensor | None = None
    instant_ignore: Tensor | None = None


class LossValues(NamedTuple):
    """The weighted sum to minimise, and each term by name: unweighted, detached, for the log."""

    total: Tensor
    terms: dict[str, Tensor]


class _Level(NamedTuple):
    """What a level's losses are called with: the inputs that must be there, and the call."""

    needs: tuple[str, ...]
    call: Callable[[nn.Module, LossInputs], Tensor]


def _frame(loss: nn.Module, x: LossInputs) -> Tensor:
    masks = {"query_mask": x.frame_query_mask, "target_mask": x.frame_target_mask}
    return cast(Tensor, loss(x.frame_matrices, x.frame_positive, x.frame_negative, **masks))


_LEVELS: Mapping[str, _Level] = {
    "video": _Level(("scores", "relevance"), lambda loss, x: loss(x.scores, x.relevance, ignore=x.ignore)),
    "self": _Level(
        ("scores", "relevance", "self_scores"),
        lambda loss, x: loss(x.scores, x.relevance, self_scores=x.self_scores, ignore=x.ignore),
    ),
    "frame": _Level(("frame_matrices", "frame_positive", "frame_negative"), _frame),
    "range": _Level(("raw",), lambda loss, x: loss(x.raw, x.raw_mask)),
    "event": _Level(
        ("scores", "event_relevance"), lambda loss, x: loss(x.scores, x.event_relevance, ignore=x.event_ignore)
    ),
    "instant": _Level(
        ("instant_scores", "instant_relevance"),
        lambda loss, x: loss(x.instant_scores, x.instant_relevance, ignore=x.instant_ignore),
    ),
}


@dataclass(frozen=True, eq=False)
class Term:
    """One loss of a recipe, its weight, and the level it works at.

    level: "video" for `loss(scores, relevance, ignore=...)`, "self" for those that also take `self_scores`, "frame"
    for losses of frame matrices, "range" for those of psi's raw outputs, "event" and "instant" for losses called as
    those of "video", on the wider relevance and on single frames. `ConfigError` for another level, and unless the
    weight is a finite number of at least 0.
    """

    loss: nn.Module
    weight: float = 1.0
    level: str = "video"

    def __post_init__(self) -> None:
        if not isinstance(self.loss, nn.Module):
            raise ConfigError(f"Term: loss must be a loss module, got {self.loss!r}. Did you pass the class? Call it.")
        non_negative_setting(self.weight, "Term: weight")
        if self.level not in _LEVELS:
            raise ConfigError(f"Term has no level {self.level!r}; {suggest(str(self.level), list(_LEVELS))}")


class WeightedLosses(nn.Module):
    """A weighted sum of named losses. A new loss is a new file and one line in the mapping.

    A term whose inputs are missing is a `ConfigError`, never a silent 0; so is a recipe without terms. `levels` says
    which inputs the recipe reads, so that a trainer need not compute the others.

    Example: .9(+) and .3(-) have a mean absolute error of .2 and a squared one of .05: .2 + 2 * .05.

        >>> import torch
        >>> from hapvr.losses import MeanAbsolute, MeanSquared
        >>> recipe = WeightedLosses({"mae": Term(MeanAbsolute()), "mse": Term(MeanSquared(), weight=2.)})
        >>> inputs = LossInputs(scores=torch.tensor([[.9, .3]]), relevance=torch.tensor([[True, False]]))
        >>> total, terms = recipe(inputs)
        >>> round(total.item(), 4), {name: round(value.item(), 4) for name, value in terms.items()}
        (0.3, {'mae': 0.2, 'mse': 0.05})
    """

    def __init__(self, terms: Mapping[str, Term]) -> None:
        super().__init__()
        if not terms:
            raise ConfigError("WeightedLosses needs at least one term, such as {'video_ap': Term(QuadLinearAP())}.")
        for name, term in terms.items():
            if not isinstance(term, Term):
                raise ConfigError(f"WeightedLosses: '{name}' must be a Term(loss, weight, level), got {term!r}.")
        self.terms = dict(terms)
        self.losses = nn.ModuleList(term.loss for term in terms.values())

    @property
    def levels(self) -> frozenset[str]:
        """The levels that the terms work at."""
        return frozenset(term.level for term in self.terms.values())

    def forward(self, inputs: LossInputs) -> LossValues:
        """The weighted sum, and the value of each term. All inputs on one device."""
        self._require_inputs(inputs)
        values = {name: _LEVELS[term.level].call(term.loss, inputs) for name, term in self.terms.items()}
        total = torch.stack([self.terms[name].weight * value for name, value in values.items()]).sum()
        return LossValues(total, {name: value.detach() for name, value in values.items()})

    def _require_inputs(self, inputs: LossInputs) -> None:
        for name, term in self.terms.items():
            missing = [field for field in _LEVELS[term.level].needs if getattr(inputs, field) is None]
            if missing:
                raise ConfigError(
                    f"the term '{name}' works at the level '{term.level}' and LossInputs lacks {', '.join(missing)}. "
                    "Pass them, or leave the term out of the recipe."
                )


def hapvr_losses() -> WeightedLosses:
    """The recipe of HAP-VR (arXiv:2407.15566; the range penalty is the public code's).

    >>> {name: term.weight for name, term in hapvr_losses().terms.items()}
    {'frame_ap': 6.0, 'video_ap': 4.0, 'infonce': 1.0, 'sshn': 3.0, 'range': 1.0}
    """
    losses: dict[str, tuple[nn.Module, str]] = {
        "frame_ap": (FrameQuadLinearAP(), "frame"),
        "video_ap": (QuadLinearAP(), "video"),
        "infonce": (InfoNCE(), "video"),
        "sshn": (SSHN(), "self"),
        "range": (RangePenalty(), "range"),
    }
    return WeightedLosses(
        {name: Term(loss, weight=HAPVR_WEIGHTS[name], level=level) for name, (loss, level) in losses.items()}
    )
