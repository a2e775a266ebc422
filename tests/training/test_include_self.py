"""`include_self`: the authors' objective, in which a clip is its own positive, from the recipe to the step."""

from __future__ import annotations

import pytest
import torch

from hapvr.errors import ConfigError
from hapvr.losses import FrameQuadLinearAP, LossInputs, MeanAbsolute, QuadLinearAP, Term, WeightedLosses
from hapvr.training.config import LossesConfig, TeacherConfig
from hapvr.training.pseudo_labels import make_pseudo_labels
from hapvr.training.recipe_files import load_config, make_config, to_table
from hapvr.training.step import NOTHING, Batch, compute_step_losses
from tests.losses import reference
from tests.training.test_step import joined_batch, network

THEIRS = {"video_ap": {"weight": 1.0, "include_self": True}, "frame_ap": {"weight": 1.0, "include_self": True}}
OURS = {"video_ap": {"weight": 1.0}, "frame_ap": {"weight": 1.0}}


def score_pairs(batch: Batch) -> torch.Tensor:
    model = network()
    return torch.stack([torch.stack([model.score(q, t) for t in batch.regions]) for q in batch.regions]) / 2 + 0.5


def share_content(batch: Batch) -> list[list[bool]]:
    shown = [{number for number in row if number != NOTHING} for row in batch.contents.tolist()]
    return [[bool(a & b) for b in shown] for a in shown]


def test_a_query_by_hand() -> None:
    # Itself 1.0, a positive .7, a negative .8; delta .1, rho 1. Itself leads the negative by .2: nothing is wrong. The
    # positive has itself above it and R-(.1) = 3: 3 / (2 + 3). The mean is .3; without itself it is 3 / (1 + 3).
    scores, relevance = torch.tensor([[1.0, 0.7, 0.8]]), torch.tensor([[True, True, False]])
    itself = torch.tensor([[True, False, False]])
    inputs = LossInputs(scores=scores, relevance=relevance, ignore=itself, self_mask=itself)
    for include_self, expected in ((True, 0.3), (False, 0.75)):
        term = Term(QuadLinearAP(delta=0.1, rho=1.0), include_self=include_self)
        assert WeightedLosses({"ap": term})(inputs).total.item() == pytest.approx(expected, abs=1e-6)


def test_a_step_agrees_with_loops_over_all_clips_themselves_included() -> None:
    batch = joined_batch()
    assert batch.frames is not None
    terms = compute_step_losses(network(), LossesConfig(THEIRS).build(), batch, teacher=TeacherConfig()).terms
    relevance = share_content(batch)
    nobody = [[False] * 12 for _ in range(12)]
    expected = reference.quad_linear_ap(score_pairs(batch).tolist(), relevance, nobody, 0.05, 0.1)
    assert terms["video_ap"].item() == pytest.approx(expected, rel=1e-4)
    model, matrices, positives, negatives = network(), [], [], []
    for q in range(12):
        for t in range(12):
            if relevance[q][t]:  # a clip with itself too
                matrices.append(model.frame_matrix(batch.regions[q], batch.regions[t]).tolist())
                positive, negative = make_pseudo_labels(batch.frames[q][None], batch.frames[t][None])
                positives.append(positive[0].tolist())
                negatives.append(negative[0].tolist())
    assert len(matrices) == 22 + 12
    real = [[True] * 8 for _ in matrices]
    expected = reference.frame_quad_linear_ap(matrices, positives, negatives, real, real, 0.05, 5.0)
    assert terms["frame_ap"].item() == pytest.approx(expected, rel=1e-4)


def test_both_terms_differ_from_those_of_the_paper_and_the_order_of_clips_does_not_matter() -> None:
    batch = joined_batch()
    assert batch.frames is not None
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    turned = Batch(batch.regions[order], batch.contents[order], batch.frames[order])
    theirs, again, ours = (
        compute_step_losses(network(), LossesConfig(terms).build(), given, teacher=TeacherConfig()).terms
        for terms, given in ((THEIRS, batch), (THEIRS, turned), (OURS, batch))
    )
    for name in THEIRS:
        assert theirs[name].item() == pytest.approx(again[name].item(), rel=1e-4)
        assert theirs[name].item() < 0.9 * ours[name].item()  # what is easiest to find counts as found


def test_a_clips_own_score_is_trained_only_where_it_counts() -> None:
    itself = torch.eye(4, dtype=torch.bool)
    relevance = itself | itself.roll(2, 0)
    for include_self in (True, False):
        scores = torch.rand(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
        inputs = LossInputs(scores=scores, relevance=relevance, ignore=itself, self_mask=itself)
        total = WeightedLosses({"ap": Term(QuadLinearAP(delta=1.0), include_self=include_self)})(inputs).total
        (gradient,) = torch.autograd.grad(total, [scores])
        assert bool(gradient.diagonal().ne(0).all()) == include_self


def test_other_terms_of_the_step_stay_as_they_are() -> None:
    others = {"infonce": {"weight": 1.0}, "sshn": {"weight": 1.0}, "range": {"weight": 1.0}}
    with_self, without = (
        compute_step_losses(network(), LossesConfig(own | others).build(), joined_batch(), teacher=TeacherConfig())
        for own in (THEIRS, OURS)
    )
    assert all(torch.equal(with_self.terms[name], without.terms[name]) for name in others)
    assert torch.equal(with_self.matrices, without.matrices)  # the log shows pairs of two clips


def test_it_is_a_setting_of_recipes_and_survives_being_written() -> None:
    config = load_config("tiny", ["losses.video_ap.include_self=true", "losses.frame_ap.include_self=true"])
    terms = config.losses.build()
    assert terms.pairs_with_self
    assert terms.terms["video_ap"].include_self
    assert make_config(to_table(config)) == config
    plain = load_config("tiny").losses.build()
    assert not plain.pairs_with_self
    assert not any(term.include_self for term in plain.terms.values())


def test_it_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(ConfigError, match=r"losses\.infonce has no setting 'include_self'"):
        load_config("tiny", ["losses.infonce.include_self=true"])
    with pytest.raises(ConfigError, match="include_self is true or false"):
        load_config("tiny", ["losses.video_ap.include_self=3"])
    with pytest.raises(ConfigError, match="only at the levels video and frame; got True at 'range'"):
        Term(MeanAbsolute(), level="range", include_self=True)
    recipe = WeightedLosses({"ap": Term(QuadLinearAP(), include_self=True), "f": Term(FrameQuadLinearAP(), 1, "frame")})
    scores = torch.rand(2, 2)
    with pytest.raises(ConfigError, match=r"the term 'ap' .* LossInputs lacks self_mask"):
        recipe(LossInputs(scores=scores, relevance=scores > 0.5))
