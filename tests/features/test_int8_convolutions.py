"""1 x 1 convolutions in int8: how they round, what OpenVINO makes of them, when they run, and how they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hapvr.backbones import EfficientNetLite0, ResNet50
from hapvr.errors import ConfigError, DataError, WeightsError
from hapvr.features import engine as engine_module
from hapvr.features import extractor as extractor_module
from hapvr.features.engine import OpenVinoEngine
from hapvr.features.extractor import RegionExtractor, describe_precision, fast_dtype, uses_int8
from hapvr.features.folding import FoldedConv, fold_batch_norms
from hapvr.features.int8_convolutions import (
    Int8Convolution,
    Int8Rounding,
    LayerRounding,
    fit_bounds,
    fit_rounding,
    list_convolutions,
    round_convolutions,
    round_weights,
)
from hapvr.features.regions import input_scale, join_pooled, pool_maps
from hapvr.model import Model, load, make_trained_parts, read_base_parts, save_rounding
from hapvr.model.parts import INT8, SHIPPED, load_whole_parts
from hapvr.processor import multiplies_bytes
from hapvr.weights import Part, save_parts
from tests.features.test_engine import SMALL, draw_pictures, needs_openvino

CPU = torch.device("cpu")
# Elsewhere OpenVINO adds products of bytes in 16 bits, which overflow: int8 is not used there.
needs_vnni = pytest.mark.skipif(not multiplies_bytes(), reason="this CPU does not multiply bytes")


def make_conv(weight: Tensor, bias: Tensor, *, stride: int = 1) -> FoldedConv:
    """y = weight x + bias at every place; weight [C_out, C_in]."""
    outputs, inputs = weight.shape
    conv = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=True)
    norm = nn.BatchNorm2d(outputs, eps=0.0)  # which changes nothing
    with torch.no_grad():
        conv.weight.copy_(weight[:, :, None, None])
        assert conv.bias is not None
        conv.bias.copy_(bias)
    return FoldedConv(conv, norm)


def regions_in_torch(backbone: nn.Module, pictures: Tensor) -> Tensor:
    """Region vectors by a network in torch, without whitening."""
    with torch.no_grad():
        scaled = input_scale(backbone, CPU)(pictures.permute(0, 3, 1, 2))  # type: ignore[arg-type]
        return join_pooled(pool_maps(backbone.stages(scaled)))  # type: ignore[operator]


@pytest.fixture(scope="module")
def lite() -> Model:
    return load("lite", engine="torch")


@pytest.fixture(scope="module")
def rounding() -> Int8Rounding:
    return Int8Rounding.from_part(load_whole_parts(SHIPPED / "lite")[INT8])


# --- how it rounds ---------------------------------------------------------------------------------------------------


def test_a_convolution_by_hand() -> None:
    """Levels are .01 apart from -1: inputs .126 and 9 become .13 and the highest, 1.55. Codes of the
    weights are .02 apart: 127 of them, and 2, .04 in place of .035."""
    conv = make_conv(torch.tensor([[2.54, 0.035]]), torch.tensor([0.5]))
    rounded = Int8Convolution(conv, LayerRounding(-1.0, 1.55, torch.tensor([0.25])))
    assert rounded.codes.flatten().tolist() == [127, 2]
    found = float(rounded(torch.tensor([0.126, 9.0]).view(1, 2, 1, 1)))
    # In steps from the lowest level: 113 and 255, by weights of 2.54 and .04; the low end by the weights as they are.
    expected = (113 * 0.01) * 2.54 + (255 * 0.01) * 0.04 - (2.54 + 0.035) + 0.5 + 0.25
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_agrees_with_a_loop_over_whole_numbers(stride: int) -> None:
    generator = torch.Generator().manual_seed(3)
    weight, bias = torch.randn(5, 7, generator=generator), torch.randn(5, generator=generator)
    shift, x = torch.randn(5, generator=generator), 3 * torch.randn(2, 7, 4, 4, generator=generator)
    low, high = -2.0, 4.0
    found = Int8Convolution(make_conv(weight, bias, stride=stride), LayerRounding(low, high, shift))(x)
    step = np.float32((high - low) / 255)
    for n in range(2):
        for o in range(5):
            row = [float(value) * float(step) for value in weight[o]]
            scale = max(abs(value) for value in row) / 127
            codes = [round(value / scale) for value in row]
            for i, a in enumerate(range(0, 4, stride)):
                for j, b in enumerate(range(0, 4, stride)):
                    levels = [min(255, max(0, round((float(x[n, c, a, b]) - low) / float(step)))) for c in range(7)]
                    total = sum(code * level for code, level in zip(codes, levels, strict=True)) * scale
                    right = total + float(bias[o]) + low * float(weight[o].sum()) + float(shift[o])
                    assert float(found[n, o, i, j]) == pytest.approx(right, abs=1e-4)


def test_a_channel_of_zeros_has_codes_of_zero() -> None:
    codes, scales = round_weights(torch.zeros(2, 3, 1, 1))
    assert not codes.any()
    assert torch.isfinite(scales).all()


def test_bounds_cut_off_what_is_rare() -> None:
    """Of 10,000 values up to 1, one is 2: half of the levels for it would cost more than it does."""
    values = torch.linspace(0, 1, 40_000)
    assert fit_bounds(values) == (0.0, 1.0)
    low, high = fit_bounds(torch.cat([values.repeat(40), torch.tensor([1.25])]))
    assert low == 0
    assert high < 1.25


def test_bounds_are_never_worse_than_the_extremes() -> None:
    for seed in range(5):
        values = torch.randn(2000, generator=torch.Generator().manual_seed(seed)) ** 3
        error, plain = (_squared_error(values, *bounds) for bounds in (fit_bounds(values), values.aminmax()))
        assert error <= plain * (1 + 1e-5)


def _squared_error(values: Tensor, low: float | Tensor, high: float | Tensor) -> float:
    step = (high - low) / 255
    return float((((values - low) / step).round().clamp(0, 255) * step + low - values).square().mean())


def test_biases_take_up_the_mean_error_of_every_layer() -> None:
    torch.manual_seed(0)
    backbone, pictures = EfficientNetLite0().eval(), draw_pictures(3, 112)
    fitted = fit_rounding(backbone, pictures)
    means: list[dict[str, Tensor]] = []
    plain = Int8Rounding(
        {name: LayerRounding(layer.low, layer.high, layer.shift * 0) for name, layer in fitted.layers.items()}
    )
    for network in (
        fold_batch_norms(backbone),
        round_convolutions(backbone, fitted),
        round_convolutions(backbone, plain),
    ):
        found: dict[str, Tensor] = {}
        means.append(found)
        for name in fitted.layers:
            network.get_submodule(name).register_forward_hook(
                lambda _, __, y, name=name, found=found: found.__setitem__(name, y.mean(dim=(0, 2, 3)))
            )
        regions_in_torch(network, pictures)
    right, corrected, without = means
    for name in right:
        torch.testing.assert_close(corrected[name], right[name], atol=1e-4, rtol=1e-3)
    errors = [max(float((some[name] - right[name]).abs().max()) for name in right) for some in (corrected, without)]
    assert errors[0] < errors[1] / 10


def test_layers_that_stay_exact_are_those_of_the_folded_backbone() -> None:
    torch.manual_seed(0)
    backbone, pictures = EfficientNetLite0().eval(), draw_pictures(3, 112)
    names = [name for name, _ in list_convolutions(fold_batch_norms(backbone))]
    exact = names[:-3]
    kept = fit_rounding(backbone, pictures, exact=exact)
    assert list(kept.layers) == names[-3:]
    assert kept.exact == tuple(exact)
    network = round_convolutions(backbone, kept)
    for name in names:
        assert isinstance(network.get_submodule(name), FoldedConv if name in exact else Int8Convolution)
    right = regions_in_torch(fold_batch_norms(backbone), pictures)
    nothing = fit_rounding(backbone, pictures, exact=names)
    assert torch.equal(regions_in_torch(round_convolutions(backbone, nothing), pictures), right)
    assert not torch.equal(regions_in_torch(network, pictures), right)


def test_the_shipped_model_loses_little_by_rounding(lite: Model, rounding: Int8Rounding) -> None:
    """Frames of drawn scenes, unlike those that it was fitted on."""
    pictures = draw_pictures(6, 224)
    backbone, whitening = lite.extractor.backbone, lite.extractor.whitening
    assert whitening is not None
    right, found = (
        whitening(regions_in_torch(network, pictures))
        for network in (fold_batch_norms(backbone), round_convolutions(backbone, rounding))
    )
    assert float((1 - (right * found).sum(dim=-1)).mean()) < 0.005


# --- by OpenVINO -----------------------------------------------------------------------------------------------------


@needs_openvino
@needs_vnni
def test_openvino_multiplies_bytes_and_agrees_with_torch(lite: Model, rounding: Int8Rounding) -> None:
    backbone, pictures = lite.extractor.backbone, draw_pictures(5, 224)
    engine = OpenVinoEngine(backbone, side=224, precision=torch.float32, rounding=rounding)
    assert engine.precision == torch.int8
    with engine._request() as request:
        kinds = [
            (str(node.get_rt_info()["layerType"].astype(str)), str(node.get_rt_info()["runtimePrecision"].astype(str)))
            for node in request.get_compiled_model().get_runtime_model().get_ops()
        ]
    assert kinds.count(("Convolution", "u8")) == len(rounding.layers) == 26
    right = regions_in_torch(round_convolutions(backbone, rounding), pictures)
    distance = 1 - F.cosine_similarity(join_pooled(engine(pictures)), right, dim=-1)
    assert float(distance.mean()) < 2e-3  # a value next to the middle between two levels may become either


@needs_openvino
@needs_vnni
def test_a_picture_has_the_same_regions_in_every_batch_in_int8(lite: Model, rounding: Int8Rounding) -> None:
    engine = OpenVinoEngine(lite.extractor.backbone, side=224, precision=torch.float32, rounding=rounding)
    pictures = draw_pictures(5, 224)
    alone = torch.cat([join_pooled(engine(picture[None])) for picture in pictures])
    order = torch.tensor([3, 0, 4, 2, 1])
    for count in (2, 3, 5):
        assert torch.equal(join_pooled(engine(pictures[order[:count]])), alone[order[:count]])


@needs_openvino
@needs_vnni
def test_scores_in_int8_are_nearly_those_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, vnni=True, bfloat16=False)  # where int8 is used, the rest is float32
    lite, other = load("lite", engine="torch"), load("lite", engine="openvino", int8=True)
    films = [draw_pictures(4, 224).numpy(), draw_pictures(7, 224)[3:].numpy()]
    exact, rounded = ([model.extractor(film) for film in films] for model in (lite, other))
    assert other.extractor._openvino is not None
    assert other.extractor._openvino.precision == torch.int8
    with torch.no_grad():
        for a in range(2):
            for b in range(2):
                right = float(lite.similarity.score(exact[a], exact[b]))
                for first in (rounded, exact):
                    assert abs(float(lite.similarity.score(first[a], rounded[b])) - right) < 0.02


# --- when it runs ----------------------------------------------------------------------------------------------------


def pretend(monkeypatch: pytest.MonkeyPatch, *, vnni: bool, bfloat16: bool) -> None:
    monkeypatch.delenv("HAPVR_INT8", raising=False)
    monkeypatch.delenv("HAPVR_ENGINE", raising=False)
    monkeypatch.setattr(extractor_module, "multiplies_bytes", lambda: vnni)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bfloat16, raising=False)
    monkeypatch.setattr(extractor_module, "has_unusable_amx", lambda: False)


@pytest.mark.parametrize(("vnni", "bfloat16"), [(True, True), (True, False), (False, True), (False, False)])
def test_int8_is_for_cpus_with_vnni_and_without_bfloat16(
    monkeypatch: pytest.MonkeyPatch, rounding: Int8Rounding, vnni: bool, bfloat16: bool
) -> None:
    pretend(monkeypatch, vnni=vnni, bfloat16=bfloat16)
    assert uses_int8(CPU) == (vnni and not bfloat16)
    extractor = RegionExtractor(EfficientNetLite0(), rounding=rounding, engine="auto")
    assert (extractor.rounding is rounding) == (vnni and not bfloat16)
    assert extractor.precision == fast_dtype(CPU)  # what torch would compute in


def test_int8_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, rounding: Int8Rounding) -> None:
    pretend(monkeypatch, vnni=True, bfloat16=False)
    assert RegionExtractor(EfficientNetLite0(), rounding=rounding, precision=torch.float32).rounding is None
    assert load("lite").extractor.rounding is None  # what measures or trains
    assert load("lite", int8=True).extractor.rounding is not None
    assert load("lite-untrained", int8=True).extractor.rounding is None  # its backbone is another
    assert not uses_int8(torch.device("cuda"))
    monkeypatch.setenv("HAPVR_INT8", "off")
    assert load("lite", int8=True).extractor.rounding is None
    monkeypatch.setenv("HAPVR_INT8", "of")
    with pytest.raises(ConfigError, match="HAPVR_INT8 cannot be 'of'; did you mean 'off'"):
        uses_int8(CPU)


@needs_openvino
def test_an_engine_that_is_wrong_in_int8_runs_without(
    monkeypatch: pytest.MonkeyPatch, lite: Model, rounding: Int8Rounding
) -> None:
    """As where products of bytes overflow."""
    pretend(monkeypatch, vnni=True, bfloat16=False)
    settings = {"sampling": SMALL, "engine": "openvino"}
    extractor = RegionExtractor(lite.extractor.backbone, rounding=rounding, **settings)  # type: ignore[arg-type]
    assert extractor.computes_in == torch.int8
    monkeypatch.setitem(engine_module._MAX_DISTANCE, torch.int8, -1.0)
    pictures = draw_pictures(2, 112)
    with pytest.warns(RuntimeWarning, match="differ from those of torch by .* It is run without int8"):
        found = extractor.regions(pictures)
    assert (extractor.engine, extractor.computes_in, extractor.rounding) == ("openvino", torch.float32, None)
    exact = RegionExtractor(extractor.backbone, precision=torch.float32, **settings)  # type: ignore[arg-type]
    torch.testing.assert_close(found, exact.regions(pictures))


@needs_openvino
def test_it_is_said_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, vnni=True, bfloat16=False)
    assert describe_precision(rounded=True).endswith(", in float32, for libraries in int8")
    assert describe_precision(rounded=False).endswith(", in float32")
    monkeypatch.setenv("HAPVR_ENGINE", "torch")
    assert describe_precision(rounded=True).startswith("torch")
    assert describe_precision(rounded=True).endswith(", in float32")


def test_the_digest_of_a_model_does_not_depend_on_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, vnni=True, bfloat16=False)
    assert load("lite", int8=True).extractor.digest() == load("lite").extractor.digest()


# --- how it is stored ------------------------------------------------------------------------------------------------


def make_rounding() -> Int8Rounding:
    return Int8Rounding({"a.b": LayerRounding(-1.0, 2.5, torch.tensor([0.5, 0.25]))}, ("a.c",))


def test_a_rounding_is_stored_and_read() -> None:
    read = Int8Rounding.from_part(make_rounding().to_part())
    found = read.layers
    assert list(found) == ["a.b"]
    assert read.exact == ("a.c",)
    old = Part({"layers": 1}, make_rounding().to_part().tensors)  # from before layers could stay exact
    assert Int8Rounding.from_part(old).exact == ()
    layer = found["a.b"]
    assert (layer.low, layer.high, layer.shift.tolist()) == (-1.0, 2.5, [0.5, 0.25])


CHANGES: Mapping[str, dict[str, Tensor]] = {
    "of as many layers as it says": {"c.bounds": torch.zeros(2), "c.shift": torch.zeros(1)},
    "bounds and shift": {"a.b.scale": torch.zeros(1)},
    "must hold float32": {"a.b.shift": torch.zeros(2, dtype=torch.float64)},
    "two bounds for a.b": {"a.b.bounds": torch.zeros(3)},
}


@pytest.mark.parametrize("problem", CHANGES)
def test_a_damaged_rounding_is_refused(problem: str) -> None:
    part = make_rounding().to_part()
    with pytest.raises(WeightsError, match=problem):
        Int8Rounding.from_part(Part(part.config, {**part.tensors, **CHANGES[problem]}))


@pytest.mark.parametrize("exact", ["a.c", [1], None])
def test_names_of_exact_layers_must_be_a_list_of_names(exact: object) -> None:
    part = make_rounding().to_part()
    with pytest.raises(WeightsError, match="name those that stay exact"):
        Int8Rounding.from_part(Part({**part.config, "exact": exact}, part.tensors))


@pytest.mark.parametrize(
    ("low", "high", "shift"),
    [(0.5, 1.0, [0.0]), (-1.0, 0.0, [0.0]), (float("nan"), 1.0, [0.0]), (0.0, 1.0, [float("inf")])],
)
def test_impossible_bounds_are_refused(low: float, high: float, shift: list[float]) -> None:
    with pytest.raises((ConfigError, DataError)):
        LayerRounding(low, high, torch.tensor(shift))


def test_a_rounding_of_another_backbone_is_refused(rounding: Int8Rounding) -> None:
    with pytest.raises(WeightsError, match="another backbone than resnet50"):
        round_convolutions(ResNet50().eval(), rounding)
    name = next(iter(rounding.layers))
    layer = rounding.layers[name]
    short = LayerRounding(layer.low, layer.high, layer.shift[:-1])
    with pytest.raises(WeightsError, match="shifts for a convolution"):
        round_convolutions(EfficientNetLite0().eval(), Int8Rounding({**rounding.layers, name: short}, rounding.exact))
    with pytest.raises(WeightsError, match="another backbone"):
        round_convolutions(EfficientNetLite0().eval(), Int8Rounding(rounding.layers, rounding.exact[1:]))


def test_a_rounding_is_kept_with_its_model_and_not_with_models_trained_on_it(tmp_path: Path) -> None:
    parts = load_whole_parts(SHIPPED / "lite")
    given = Int8Rounding.from_part(parts.pop(INT8))
    save_parts(tmp_path / "model", parts)
    before = load(tmp_path / "model", int8=True)
    assert before.extractor.rounding is None
    save_rounding(tmp_path / "model", given)
    found = Int8Rounding.from_part(load_whole_parts(tmp_path / "model")[INT8])
    assert all(torch.equal(layer.shift, given.layers[name].shift) for name, layer in found.layers.items())
    assert INT8 not in read_base_parts(tmp_path / "model")
    assert INT8 not in make_trained_parts(tmp_path / "model", before.similarity)
