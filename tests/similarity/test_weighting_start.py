"""How attention starts, against the facts of the authors' initialisation."""

from __future__ import annotations

import math

import torch

from hapvr.similarity.weighting import RegionAttention


def test_attention_starts_from_xavier_weights_and_a_zero_bias() -> None:
    torch.manual_seed(0)
    module = RegionAttention(512)
    assert not module.transform.bias.any()
    for weight, fans in ((module.transform.weight, 512 + 512), (module.context.weight, 512 + 1)):
        bound = math.sqrt(6 / fans)
        assert 0.95 * bound < weight.abs().max().item() <= bound
        assert abs(weight.std().item() / (bound / math.sqrt(3)) - 1) < 0.1  # uniform within the bound
    assert abs(module.transform.weight.std().item() - 0.0442) < 0.0005  # torch's own default: .0255
