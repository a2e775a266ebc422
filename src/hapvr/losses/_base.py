"""The two small base classes: what a loss prints, and the calling convention of the losses on a score matrix."""

from __future__ import annotations

from torch import Tensor, nn

from hapvr.losses._inputs import prepare, without_autocast


class Loss(nn.Module):
    """A loss without weights; it prints its settings."""

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        settings = {k: v for k, v in vars(self).items() if not k.startswith("_") and k != "training"}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())


class ScoreLoss(Loss):
    """A loss of a score matrix: `loss(scores, relevance, *, ignore=None)`.

    Subclasses write only `value`; inputs are checked and half precision is kept out here.
    """

    def forward(self, scores: Tensor, relevance: Tensor, *, ignore: Tensor | None = None) -> Tensor:
        """The loss, a scalar that is part of the graph of `scores` also where it is 0.

        scores [Q, N]: floating point, the higher the more alike, in [0, 1].
        relevance [Q, N]: bool, True where candidate n is relevant to query q.
        ignore [Q, N]: bool, True where an entry is neither positive nor negative, such as the clip itself.
        """
        scores, positive, negative = prepare(scores, relevance, ignore)
        with without_autocast(scores):
            return self.value(scores, positive, negative)

    def value(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of checked inputs: scores in float32 or float64, no entry both positive and negative; [Q, N]."""
        raise NotImplementedError
