"""The checks of tensor arguments."""

from __future__ import annotations

import pytest
import torch

from hapvr.checks import require_finite
from hapvr.errors import DataError


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_single_bad_value_is_found_and_counted(dtype: torch.dtype, bad: float) -> None:
    values = torch.rand(3, 40, dtype=torch.float32).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        require_finite(values, "values")
        for place in ((0, 0), (1, 17), (2, 39)):
            spoilt = values.clone()
            spoilt[place] = bad
            with pytest.raises(DataError, match="values holds 1 NaN or infinite of 120"):
                require_finite(spoilt, "values")


def test_no_value_is_no_bad_value() -> None:
    require_finite(torch.empty(0, 4), "values")
