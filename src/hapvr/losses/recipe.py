"""A recipe of weighted losses: what a training step minimises, written as data.

`TERMS` maps the names that settings use to losses: a new loss gets an import and a line there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.losses._base import check_number
from hapvr.losses.black_box_ap import BlackBoxAP
from hapvr.losses.circle import Circle
from hapvr.losses.contrastive import Contrastive
from hapvr.losses.dir_ap import DirAP
from hapvr.losses.fast_ap import FastAP
from hapvr.losses.frame_quad_linear_ap import FrameQuadLinearAP
from hapvr.losses.infonce import InfoNCE
from hapvr.losses.mean_absolute import MeanAbsolute
from hapvr.losses.mean_squared import MeanSquared
from hapvr.losses.quad_linear_ap import QuadLinearAP
from hapvr.losses.range_penalty import RangePenalty
from hapvr.losses.smooth_ap import SmoothAP
from hapvr.losses.sshn import SSHN
from hapvr.losses.triplet import Triplet

HAPVR_WEIGHTS: Mapping[str, float] = {"frame_ap": 6.0, "video_ap": 4.0, "infonce": 1.0, "sshn": 3.0, "range": 1.0}
"""The weights of the paper's terms (lambda_f, lambda_v, 1, lambda_s, r): their only home."""

TERMS: Mapping[str, tuple[type[nn.Module], str]] = {
    "frame_ap": (FrameQuadLinearAP, "frame"),
    "video_ap": (QuadLinearAP, "video"),
    "infonce": (InfoNCE, "video"),
    "sshn": (SSHN, "self"),
    "range": (RangePenalty, "range"),
    "mae": (MeanAbsolute, "video"),
    "mse": (MeanSquared, "video"),
    "contrastive": (Contrastive, "video"),
    "triplet": (Triplet, "video"),
    "circle": (Circle, "video"),
    "fast_ap": (FastAP, "video"),
    "dir_ap": (DirAP, "video"),
    "black_box_ap": (BlackBoxAP, "video"),
    "smooth_ap": (SmoothAP, "video"),
    "event_ap": (QuadLinearAP, "event"),
    "instant_ap": (QuadLinearAP, "instant"),
    "instant_infonce": (InfoNCE, "instant"),
}
"""The names that a recipe may give to its terms: the loss and the level it works at."""

# The inputs that the losses of a level take: by place, and by keyword.
_LEVELS: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "video": (("scores", "relevance"), {"ignore": "ignore"}),
    "self": (("scores", "relevance"), {"self_scores": "self_scores", "ignore": "ignore"}),
    "frame": (
        ("frame_matrices", "frame_positive", "frame_negative"),
        {"query_mask": "frame_query_mask", "target_mask": "frame_target_mask"},
    ),
    "range": (("raw", "raw_mask"), {}),
    "event": (("scores", "event_relevance"), {"ignore": "event_ignore"}),
    "instant": (("instant_scores", "instant_relevance"), {"ignore": "instant_ignore"}),
}
_OPTIONAL = ("ignore", "mask")  # how the inputs end that may be left out
_WITH_SELF = ("video", "frame")  # levels at which a term may count a clip as its own positive


@dataclass(frozen=True, eq=False)
class LossInputs:
    """The inputs of all losses in one training step. Those that no term of the recipe reads may be left out."""

    # Levels "video" and "self".
    scores: Tensor | None = None  # [Q, N] in [0, 1]
    relevance: Tensor | None = None  # bool [Q, N]
    ignore: Tensor | None = None  # bool [Q, N]; optional, as are all masks
    self_scores: Tensor | None = None  # [Q], the score of each query clip with itself; "self" alone
    self_mask: Tensor | None = None  # bool [Q, N], True where a candidate is the query itself; for `Term.include_self`
    # Level "frame": the P positive pairs.
    frame_matrices: Tensor | None = None  # [P, Tq, Tt] frame similarities
    frame_positive: Tensor | None = None  # bool [P, Tq, Tt]
    frame_negative: Tensor | None = None  # bool [P, Tq, Tt]
    frame_query_mask: Tensor | None = None  # bool [P, Tq], True = real
    frame_target_mask: Tensor | None = None  # bool [P, Tt], True = real
    # Level "range": psi's outputs before they are cut to [-1, 1].
    raw: Tensor | None = None  # any shape
    raw_mask: Tensor | None = None  # bool, True = real
    # Level "event": a wider relevance of the same scores, footage of one event.
    event_relevance: Tensor | None = None  # bool [Q, N]
    event_ignore: Tensor | None = None  # bool [Q, N]
    # Level "instant": single frames of all clips, and which of them show the same instant.
    instant_scores: Tensor | None = None  # [F, G] in [0, 1]
    instant_relevance: Tensor | None = None  # bool [F, G]
    instant_ignore: Tensor | None = None  # bool [F, G]


class LossValues(NamedTuple):
    """The weighted sum to minimise, and each term by name: unweighted, detached, for the log."""

    total: Tensor
    terms: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Term:
    """One loss of a recipe, its weight (at least 0), and the level it works at.

    level: "video" for `loss(scores, relevance, ignore=...)`, "self" for those that also take `self_scores`, "frame"
    for losses of frame matrices, "range" for those of psi's raw outputs, "event" and "instant" for losses called as
    those of "video", on the wider relevance and on single frames.

    include_self: count each clip as its own positive, as the authors' public code does and their paper does not; for
    the levels "video" (what `LossInputs.self_mask` marks is not ignored) and "frame" (pass the pairs of each clip with
    itself too).
    """

    loss: nn.Module
    weight: float = 1.0
    level: str = "video"
    include_self: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.loss, nn.Module):
            raise ConfigError(f"Term: loss must be a loss module, got {self.loss!r}. Did you pass the class? Call it.")
        check_number(self.weight, "Term: weight")
        if self.level not in _LEVELS:
            raise ConfigError(f"Term has no level {self.level!r}; {suggest(str(self.level), list(_LEVELS))}")
        if not isinstance(self.include_self, bool) or (self.include_self and self.level not in _WITH_SELF):
            raise ConfigError(
                f"Term: include_self is true or false, and true only at the levels {' and '.join(_WITH_SELF)}; got "
                f"{self.include_self!r} at '{self.level}'."
            )


class WeightedLosses(nn.Module):
    """A weighted sum of named losses. A new loss is a new file, and a line in `TERMS` for recipes.

    A term whose inputs are missing is a `ConfigError`, never a silent 0; so is a recipe without terms. `levels` says
    which inputs the recipe reads, so that a trainer need not compute the others.

    Example: .9(+) and .3(-) have a mean absolute error of .2 and a squared one of .05: .2 + 2 * .05.

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

    @property
    def pairs_with_self(self) -> bool:
        """Whether the losses of frame matrices want the pairs of each clip with itself too."""
        return any(term.include_self and term.level == "frame" for term in self.terms.values())

    def forward(self, inputs: LossInputs) -> LossValues:
        """The weighted sum, and the value of each term. All inputs on one device."""
        values: dict[str, Tensor] = {}
        for name, term in self.terms.items():
            places, keywords = _LEVELS[term.level]
            given = {field: getattr(inputs, field) for field in (*places, *keywords.values())}
            missing = [field for field, value in given.items() if value is None and not field.endswith(_OPTIONAL)]
            if term.include_self and term.level == "video":
                if inputs.self_mask is None:
                    missing.append("self_mask")
                elif inputs.ignore is not None:
                    given["ignore"] = inputs.ignore & ~inputs.self_mask
            if missing:
                raise ConfigError(
                    f"the term '{name}' works at the level '{term.level}' and LossInputs lacks {', '.join(missing)}. "
                    "Pass them, or leave the term out of the recipe."
                )
            by_keyword = {keyword: given[field] for keyword, field in keywords.items()}
            values[name] = term.loss(*(given[field] for field in places), **by_keyword)
        total = torch.stack([self.terms[name].weight * value for name, value in values.items()]).sum()
        return LossValues(total, {name: value.detach() for name, value in values.items()})


def build_hapvr_losses() -> WeightedLosses:
    """The recipe of HAP-VR (arXiv:2407.15566; the range penalty is the public code's).

    >>> {name: (term.weight, term.level) for name, term in build_hapvr_losses().terms.items() if term.weight > 3}
    {'frame_ap': (6.0, 'frame'), 'video_ap': (4.0, 'video')}
    """
    terms = {}
    for name, weight in HAPVR_WEIGHTS.items():
        loss, level = TERMS[name]
        terms[name] = Term(loss(), weight, level)
    return WeightedLosses(terms)
