"""A backbone whose 1 x 1 convolutions multiply bytes, for CPUs that have instructions for that (VNNI).

The input of such a convolution is rounded to 256 levels between two bounds, its weights to 255 levels with a scale for
each output. Products and their sums are exact whole numbers; everything between these convolutions, the depthwise ones
included, stays in float32. Bounds have the smallest squared error on real pictures, and biases take up the mean error
there: rounded weights shift the mean of an output, and without that correction region vectors are ten times as far
from those in float32. A few convolutions, whose rounding changes region vectors most, may stay in float32.

What is written here in torch computes these values in float32, as a reference that runs everywhere;
`hapvr.features.engine` gives it to OpenVINO, which multiplies bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.backbones.base import Backbone
from hapvr.checks import require_finite
from hapvr.errors import ConfigError, WeightsError
from hapvr.features.folding import FoldedConv, fold_batch_norms
from hapvr.features.regions import input_scale
from hapvr.weights import Part

LEVELS = 256  # of an input
LARGEST_WEIGHT = 127  # of a weight's code
_SAMPLE = 100_000  # values of a layer's input that its bounds are fitted on
_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3)  # of the smallest and largest value, as bounds


@dataclass(frozen=True, eq=False)
class LayerRounding:
    """How one 1 x 1 convolution is rounded."""

    low: float  # the value of the lowest level of its input
    high: float  # and of the highest
    shift: Tensor  # float32 [C_out], added to its outputs: the mean error on the pictures of the fit

    def __post_init__(self) -> None:
        require_finite(torch.tensor([self.low, self.high]), "bounds of int8")
        require_finite(self.shift, "shifts of int8")
        if not self.low <= 0 < self.high or self.shift.ndim != 1:
            raise ConfigError(
                f"bounds of int8 must enclose 0, with one shift for each output; got {self.low:g} to {self.high:g} "
                f"and shifts {list(self.shift.shape)}."
            )


@dataclass(frozen=True, eq=False)
class Int8Rounding:
    """How the 1 x 1 convolutions of a folded backbone are rounded, by their names."""

    layers: Mapping[str, LayerRounding]
    exact: tuple[str, ...] = ()  # those that are not rounded

    def to_part(self) -> Part:
        """This as the part "int8" of a model folder (see `hapvr.weights`)."""
        tensors = {}
        for name, layer in self.layers.items():
            tensors[f"{name}.bounds"] = torch.tensor([layer.low, layer.high], dtype=torch.float32)
            tensors[f"{name}.shift"] = layer.shift
        return Part({"layers": len(self.layers), "exact": list(self.exact)}, tensors)

    @classmethod
    def from_part(cls, part: Part) -> Int8Rounding:
        """Read what `to_part` made; anything else is a `WeightsError`."""
        names = {name.rpartition(".")[0] for name in part.tensors}
        expected = {f"{name}.{kind}" for name in names for kind in ("bounds", "shift")}
        exact = part.config.get("exact", [])
        if (
            dict(part.config) | {"exact": exact} != {"layers": len(names), "exact": exact}
            or set(part.tensors) != expected
        ):
            raise WeightsError("the part 'int8' must have bounds and shift of as many layers as it says.")
        if not names or not isinstance(exact, list) or not all(isinstance(name, str) for name in exact):
            raise WeightsError("the part 'int8' must round a layer, and name those that stay exact.")
        if any(tensor.dtype != torch.float32 for tensor in part.tensors.values()):
            raise WeightsError("the part 'int8' must hold float32.")
        layers = {}
        for name in sorted(names):
            bounds, shift = part.tensors[f"{name}.bounds"], part.tensors[f"{name}.shift"]
            if bounds.shape != (2,):
                raise WeightsError(f"the part 'int8' must have two bounds for {name}, got {list(bounds.shape)}.")
            layers[name] = LayerRounding(float(bounds[0]), float(bounds[1]), shift)
        return cls(layers, tuple(exact))


class Int8Convolution(nn.Module):
    """A 1 x 1 convolution of rounded inputs with rounded weights: [N, C_in, H, W] -> [N, C_out, h, w].

    With x an input, d = (high - low) / 255 and q = round((x - low) / d) from 0 to 255, x is taken for low + d q.
    Weights times d are rounded to codes times a scale for each output; what low adds is the same at every place and
    belongs to the bias.
    """

    codes: Tensor  # int8 [C_out, C_in, 1, 1]
    scales: Tensor  # [C_out, 1, 1, 1]
    bias: Tensor  # [C_out]

    def __init__(self, conv: FoldedConv, rounding: LayerRounding) -> None:
        super().__init__()
        step = (rounding.high - rounding.low) / (LEVELS - 1)
        weight = conv.weight.detach()
        if len(weight) != len(rounding.shift):
            raise WeightsError(f"int8 has {len(rounding.shift)} shifts for a convolution of {len(weight)} outputs.")
        codes, scales = round_weights(weight * step)
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", conv.bias.detach() + weight.sum(dim=(1, 2, 3)) * rounding.low + rounding.shift)
        self.stride, self.per_step, self.offset = conv.stride, 1 / step, -rounding.low / step

    def forward(self, x: Tensor) -> Tensor:
        """[N, C_in, H, W] -> [N, C_out, h, w]."""
        # As an operation that OpenVINO knows: it then keeps these values as bytes.
        levels = torch.fake_quantize_per_tensor_affine(x * self.per_step + self.offset, 1.0, 0, 0, LEVELS - 1)
        return F.conv2d(levels, self.codes.float() * self.scales, self.bias, self.stride)


def round_weights(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes int8 [C_out, C_in, 1, 1] and scales [C_out, 1, 1, 1]: code times scale is next to the weight.

    >>> codes, scales = round_weights(torch.tensor([1.27, -0.004, 0.0]).view(1, 3, 1, 1))
    >>> codes.flatten().tolist(), round(scales.item(), 4)
    ([127, 0, 0], 0.01)
    """
    scales = weight.abs().amax(dim=(1, 2, 3), keepdim=True) / LARGEST_WEIGHT
    codes = weight * torch.where(scales > 0, 1 / scales, 0.0)
    return codes.round().clamp(-LARGEST_WEIGHT, LARGEST_WEIGHT).to(torch.int8), scales


def fit_bounds(values: Tensor) -> tuple[float, float]:
    """The bounds of 256 levels, 0 within them, that round values [...] with the smallest squared error.

    Tried are shares of the smallest and of the largest value: beyond the bounds values are cut off.

    >>> low, high = fit_bounds(torch.tensor([0.0, 1.0, 2.55]))
    >>> low, round(high, 6)
    (0.0, 2.55)
    """
    values = values.flatten()
    lowest, highest = min(0.0, float(values.min())), max(1e-6, float(values.max()))
    best = (float("inf"), lowest, highest)
    for low in sorted({lowest * share for share in _SHARES}):
        for high in (highest * share for share in _SHARES):
            step = (high - low) / (LEVELS - 1)
            rounded = ((values - low) / step).round_().clamp_(0, LEVELS - 1).mul_(step).add_(low)
            error = float((rounded - values).square_().mean())
            if error < best[0]:
                best = (error, low, high)
    return best[1:]


@torch.no_grad()
def fit_rounding(backbone: Backbone, pictures: Tensor, *, exact: Collection[str] = ()) -> Int8Rounding:
    """How a backbone in evaluation mode is rounded best for such pictures: uint8 [N, S, S, 3], real ones, 50 to 200.

    All pictures pass each layer at once: 100 of 224 x 224 take 2 GB. The convolutions named `exact` are not rounded.
    """
    folded = fold_batch_norms(backbone)
    scaled = input_scale(backbone, torch.device("cpu"))(pictures.permute(0, 3, 1, 2))
    bounds: dict[str, tuple[float, float]] = {}
    means: dict[str, Tensor] = {}
    for name, conv in list_convolutions(folded):
        conv.register_forward_hook(_make_observer(name, bounds, means))
    folded.stages(scaled)
    names = [name for name in bounds if name not in exact]
    plain = {name: LayerRounding(*bounds[name], torch.zeros_like(means[name])) for name in names}
    rounded = round_convolutions(backbone, Int8Rounding(plain, tuple(exact)))
    shifts: dict[str, Tensor] = {}
    for name in names:
        rounded.get_submodule(name).register_forward_hook(_make_corrector(name, means, shifts))
    rounded.stages(scaled)
    return Int8Rounding({name: LayerRounding(*bounds[name], shifts[name]) for name in names}, tuple(exact))


def _make_observer(
    name: str, bounds: dict[str, tuple[float, float]], means: dict[str, Tensor]
) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
    def observe(_: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> None:
        generator = torch.Generator().manual_seed(0)
        values = inputs[0].permute(0, 2, 3, 1).reshape(-1)  # in an order that does not depend on how they lie
        bounds[name] = fit_bounds(values[torch.randint(len(values), (_SAMPLE,), generator=generator)])
        means[name] = outputs.mean(dim=(0, 2, 3))

    return observe


def _make_corrector(
    name: str, means: Mapping[str, Tensor], shifts: dict[str, Tensor]
) -> Callable[[nn.Module, tuple[Tensor], Tensor], Tensor]:
    def correct(_: nn.Module, __: tuple[Tensor], outputs: Tensor) -> Tensor:
        shifts[name] = means[name] - outputs.mean(dim=(0, 2, 3))
        return outputs + shifts[name][:, None, None]  # what follows sees corrected inputs

    return correct


def round_convolutions(backbone: Backbone, rounding: Int8Rounding) -> Backbone:
    """A folded copy of a backbone in evaluation mode, with 1 x 1 convolutions rounded.

    `WeightsError` unless the rounding names exactly these convolutions: it belongs to one backbone.
    """
    folded = fold_batch_norms(backbone)
    rounded = copy.deepcopy(folded) if folded is backbone else folded
    found = dict(list_convolutions(rounded))
    if odd := sorted(set(found) ^ {*rounding.layers, *rounding.exact}):
        raise WeightsError(f"int8 was fitted for another backbone than {backbone.name}: they differ in {odd[0]}.")
    for name, layer in rounding.layers.items():
        parent, _, last = name.rpartition(".")
        setattr(rounded.get_submodule(parent), last, Int8Convolution(found[name], layer))
    return rounded


def list_convolutions(folded: nn.Module) -> Iterator[tuple[str, FoldedConv]]:
    """The names and modules of the 1 x 1 convolutions of a folded backbone."""
    for name, module in folded.named_modules():
        if isinstance(module, FoldedConv) and module.kernel == 1 and module.groups == 1:
            yield name, module
