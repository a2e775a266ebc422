"""Scores by the library in C: by hand, by slow loops, and what they must not depend on; each width of vectors."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hapvr.errors import ShapeError
from hapvr.similarity import int8, pairwise
from hapvr.similarity.int8 import Int8Descriptors, Int8Scorer, compute_int8_matrix, quantize
from hapvr.similarity.native import NativeScores, build, load_native, prepare_psi, round_weights
from tests.similarity.models import model, video
from tests.similarity.test_int8 import codes, loop_matrix

# The narrow vectors of AVX-VNNI as AVX-512 encodes them: the same source, on CPUs that have no AVX-VNNI.
FLAGS = {**build.TARGETS, "narrow": ["-DLANES=8", "-mavx512f", "-mavx512vl", "-mavx512vnni"]}
SHAPE = {"regions": 9, "dims": 64}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NativeScores]:
    """Those that can be compiled and run here."""
    found = {}
    for name, flags in FLAGS.items():
        path = tmp_path_factory.mktemp("native") / f"{name}.so"
        try:
            build.compile_library(flags, path)
        except build.BuildError:
            continue
        if (library := NativeScores(path)).runs_here():
            found[name] = library
    return found


@pytest.fixture(params=FLAGS)
def library(
    request: pytest.FixtureRequest, libraries: dict[str, NativeScores], monkeypatch: pytest.MonkeyPatch
) -> NativeScores:
    """One library, in use."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("scores.c is for x86-64")
    if request.param not in libraries:
        pytest.skip(f"no compiler, or a CPU that cannot run {request.param}")
    chosen = libraries[request.param]
    monkeypatch.setattr(int8, "load_native", lambda: chosen)
    return chosen


def draw(frames: int, seed: int, *, by_vector: bool = False) -> Int8Descriptors:
    """Codes whose products are about as large as similarities are."""
    drawn = codes(frames, seed, by_vector=by_vector, **SHAPE)
    return Int8Descriptors(drawn.codes, drawn.scales / 4)


def loop_scores(built: Any, queries: list[Int8Descriptors], targets: list[Int8Descriptors]) -> Tensor:
    with torch.no_grad():
        return torch.tensor([[built.score(one.decode(), other.decode()) for other in targets] for one in queries])


# --- frame matrices --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("library")
def test_a_matrix_by_hand() -> None:
    """Regions that are alike in one number: 10 * 5 * .1 * .2 = 1 for the first of the query, 0 for eight others."""
    one, other = torch.zeros(2, 1, 9, 64, dtype=torch.int8)
    one[0, 0, 0], other[0, 3, 0], other[0, 4, 0] = 10, 5, -5
    query, target = Int8Descriptors(one, torch.tensor([[0.1]])), Int8Descriptors(other, torch.tensor([[0.2]]))
    assert compute_int8_matrix(query, target).item() == pytest.approx(1 / 9)
    # The other way region 3 has its 1, and region 4 the 0 of a region that is not alike.
    assert compute_int8_matrix(query, target, both_ways=True).item() == pytest.approx(1 / 9)
    one[0, 1:, 0] = 1  # eight regions with .1, so that region 4 has -.1 at best, and others 0
    assert compute_int8_matrix(query, target).item() == pytest.approx((1 + 8 * 0.1) / 9)
    both = ((1 + 8 * 0.1) / 9 + (1 - 0.1) / 9) / 2
    assert compute_int8_matrix(query, target, both_ways=True).item() == pytest.approx(both)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("query_by_vector", [False, True])
@pytest.mark.parametrize("target_by_vector", [False, True])
@pytest.mark.parametrize("sides", [(1, 1), (2, 30), (7, 5), (19, 26)])
def test_a_matrix_equals_the_loop(query_by_vector: bool, target_by_vector: bool, sides: tuple[int, int]) -> None:
    query = codes(sides[0], 1, by_vector=query_by_vector, **SHAPE)
    target = codes(sides[1], 2, by_vector=target_by_vector, **SHAPE)
    forth, back = loop_matrix(query, target), loop_matrix(target, query)
    torch.testing.assert_close(compute_int8_matrix(query, target), forth, atol=1e-5, rtol=1e-5)
    both = compute_int8_matrix(query, target, both_ways=True)
    torch.testing.assert_close(both, (forth + back.T) / 2, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(compute_int8_matrix(target, query, both_ways=True), both.T)


@pytest.mark.usefixtures("library")
def test_the_largest_codes_do_not_overflow() -> None:
    for sign in (1, -1):
        one = Int8Descriptors(torch.full((3, 9, 512), 127, dtype=torch.int8), torch.ones(3, 1))
        other = Int8Descriptors(torch.full((2, 9, 512), sign * 127, dtype=torch.int8), torch.ones(2, 1))
        assert bool((compute_int8_matrix(one, other) == sign * 127 * 127 * 512).all())


@pytest.mark.usefixtures("library")
def test_parts_of_larger_tensors_are_taken_as_they_lie() -> None:
    whole = codes(24, 1, by_vector=True, **SHAPE)
    thinned = whole[::3]
    assert not thinned.codes.is_contiguous()
    expected = loop_matrix(thinned, whole[5:9])
    torch.testing.assert_close(compute_int8_matrix(thinned, whole[5:9]), expected, atol=1e-5, rtol=1e-5)


# --- packed codes ----------------------------------------------------------------------------------------------------


def test_packed_words_by_hand_and_by_the_loop(library: NativeScores) -> None:
    table = np.arange(1 << 14, dtype=np.int64).astype(np.int8).reshape(1 << 12, 4)
    packed = np.array([[0x21, 0x43, 0x65]], np.uint8)  # the words 0x321 and 0x654
    assert library.look_up_words(packed, table).tolist() == [[*table[0x321].tolist(), *table[0x654].tolist()]]
    drawn = np.random.default_rng(0).integers(0, 256, (7, 48), np.uint8)
    expected = []
    for row in drawn:
        bits = "".join(f"{int(byte):08b}"[::-1] for byte in row)
        words = [int(bits[place : place + 12][::-1], 2) for place in range(0, len(bits), 12)]
        expected.append([number for word in words for number in table[word].tolist()])
    assert library.look_up_words(drawn, table).tolist() == expected
    with pytest.raises(ShapeError):
        library.look_up_words(drawn[:, :47], table)


# --- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("temporal", ["topk", "chamfer"])
@pytest.mark.parametrize(
    "settings",
    [
        {"comparator": False, "min_frames": 1},
        {"residual": True},
        {"min_frames": 12, "negative_slope": 0.3},
        {"residual": True, "symmetry": "levels"},
        {"symmetry": "lengths"},
    ],
    ids=str,
)
def test_scores_equal_those_of_the_decoded_vectors(settings: dict[str, Any], temporal: str) -> None:
    """Odd lengths; and short videos and such that are too large for psi at once, which torch compares."""
    built = model(dims=64, weighting="none", temporal=temporal, temporal_keep_rate=0.2, **settings)
    queries = [draw(length, length, by_vector=length > 5) for length in (1, 5, 19, 40)]
    targets = [draw(length, 90 + length, by_vector=length % 2 == 0) for length in (30, 3, 8, 17, 62)]
    expected = loop_scores(built, queries, targets)
    assert float(expected.std()) > 0.01
    for cells in (None, 500):
        got = pairwise(built, queries, targets, dtype=torch.int8, max_cells=cells)
        torch.testing.assert_close(got, expected, atol=5e-3, rtol=0.0)


def test_psi_by_hand(library: NativeScores) -> None:
    """Weights that pass the middle cell on: what comes out is the one value of the matrix times them, plus biases."""
    built = model(dims=64, weighting="none", temporal="chamfer", min_frames=8)
    psi = built.comparator
    assert psi is not None
    frames = int8._NATIVE_FRAMES
    with torch.no_grad():
        for parameter in psi.parameters():
            parameter.zero_()
        for conv, factor in ((psi.conv1, 0.5), (psi.conv2, 2.0), (psi.conv3, 0.25)):
            conv.weight[0, 0, 1, 1] = factor
        assert psi.conv2.bias is not None
        assert psi.final.bias is not None
        psi.conv2.bias[0], psi.final.weight[0, 0], psi.final.bias[0] = 0.4, 3.0, -0.2
    one = torch.zeros(frames, 9, 64, dtype=torch.int8)
    one[..., 0] = 100
    alike = Int8Descriptors(one, torch.full((frames, 1), 0.008))  # .8 * .8 = .64 everywhere
    # ((.64 * .5) * 2 + .4) * .25 * 3 - .2
    assert Int8Scorer(built).score(alike, [alike]).item() == pytest.approx(0.58, abs=2e-3)
    assert library.lanes in (8, 16)


@pytest.mark.usefixtures("library")
def test_directions_of_a_matrix_are_not_mixed_up() -> None:
    """psi whose weights differ along query and target: some look a query frame ahead, some a target frame."""
    built = model(dims=64, weighting="none", residual=True)
    psi = built.comparator
    assert psi is not None
    with torch.no_grad():
        psi.conv1.weight[:, :, 0] = 0
        psi.conv2.weight[:, :, :, 0] = 0
        psi.conv3.weight[:, :, 2] = 0
    query, target = draw(17, 1), draw(26, 2)
    expected = loop_scores(built, [query, target], [query, target])
    assert abs(float(expected[0, 1] - expected[1, 0])) > 0.01
    got = pairwise(built, [query, target], [query, target], dtype=torch.int8)
    torch.testing.assert_close(got, expected, atol=5e-3, rtol=0.0)


@pytest.mark.usefixtures("library")
def test_neither_order_nor_company_changes_a_score() -> None:
    built = model(dims=64, residual=True, symmetry="lengths")
    scorer = Int8Scorer(built)
    query, targets = (
        scorer.prepare(video(21, 1, **SHAPE)),
        [scorer.prepare(video(length, length, **SHAPE)) for length in (30, 9, 3, 28, 28, 17)],
    )
    together = scorer.score(query, targets)
    torch.testing.assert_close(scorer.score(query, targets[::-1]).flip(0), together, atol=1e-4, rtol=0.0)
    alone = torch.cat([scorer.score(query, [target]) for target in targets])
    torch.testing.assert_close(alone, together, atol=1e-4, rtol=0.0)  # short ones are padded by torch in company
    assert torch.equal(alone[[0, 3, 4, 5]], together[[0, 3, 4, 5]])


@pytest.mark.usefixtures("library")
def test_a_video_of_zeros_has_a_score() -> None:
    """Nothing is divided by the largest activation if there is none."""
    built = model(dims=64, weighting="none")
    nothing = quantize(torch.zeros(17, 9, 64))
    expected = loop_scores(built, [nothing], [nothing])
    torch.testing.assert_close(pairwise(built, [nothing], [nothing], dtype=torch.int8), expected, atol=5e-3, rtol=0.0)


def test_weights_are_rounded_so_that_errors_cancel() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 32, 3, 3, generator=generator)
    weight[0], weight[1] = 0, 1
    weight[2], weight[2, 0, 0, 0] = 0.4 / 127, 1  # of the last, 2 / 5 of a step each: 0, 1, 0, 1, 0, 0, 1, 0, 1 of them
    whole, scales = round_weights(weight, group=16)
    assert whole.shape == (4, 9, 8, 16, 4)
    back = whole.permute(1, 2, 4, 0, 3).reshape(3, 3, 32, 64).permute(3, 2, 1, 0)  # [O, C, 3, 3]
    steps = (weight / scales[:, None, None, None]) - back
    assert float(steps.abs().max()) <= 1.001  # a half by rounding, and a half by what was lost before
    assert float(steps[3:].sum((2, 3)).abs().max()) <= 0.501  # of all taps of an input, but where 127 was the limit
    assert bool((back[1] == 127).all())
    assert back[2, 1].T.flatten().tolist() == [0, 1, 0, 1, 0, 0, 1, 0, 1]
    assert int(back[0].abs().max()) == 0


def test_weights_are_rounded_again_only_if_they_change() -> None:
    psi = model().comparator
    assert psi is not None
    made = prepare_psi(psi, negative_slope=1.0, lanes=16)
    assert prepare_psi(psi, negative_slope=1.0, lanes=16) is made
    assert prepare_psi(psi, negative_slope=0.5, lanes=16) is not made
    made = prepare_psi(psi, negative_slope=1.0, lanes=16)
    with torch.no_grad():
        psi.conv2.weight.mul_(2)
    again = prepare_psi(psi, negative_slope=1.0, lanes=16)
    assert again is not made
    torch.testing.assert_close(again._held[3], 2 * made._held[3])  # scales of the second convolution


# --- which library ---------------------------------------------------------------------------------------------------


def test_no_library_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_native.__wrapped__(tmp_path) is None
    build.library_path("avx512_vnni", tmp_path).write_bytes(b"\x7fELF, cut off")
    assert load_native.__wrapped__(tmp_path) is None
    monkeypatch.setenv("HAPVR_KERNELS", "plain")
    assert load_native.__wrapped__() is None


def test_what_this_cpu_cannot_run_is_passed_over(
    libraries: dict[str, NativeScores], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not libraries:
        pytest.skip("nothing could be compiled that runs here")
    monkeypatch.delenv("HAPVR_KERNELS", raising=False)
    for target in build.TARGETS:
        build.library_path(target, tmp_path).write_bytes(b"")
        build.compile_library(next(FLAGS[name] for name in libraries), build.library_path(target, tmp_path))
    assert load_native.__wrapped__(tmp_path) is not None
    monkeypatch.setattr(NativeScores, "runs_here", lambda _: False)
    assert load_native.__wrapped__(tmp_path) is None


def test_a_build_without_a_compiler_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(build.BuildError, match="no C compiler"):
        build.compile_library([], tmp_path / "a.so")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(build.BuildError, match="riscv64"):
        build.build(tmp_path)


def test_what_the_compiler_says_is_passed_on(tmp_path: Path) -> None:
    try:
        build.find_compiler()
    except build.BuildError:
        pytest.skip("no compiler")
    with pytest.raises(build.BuildError, match="failed"):
        build.compile_library(["-DLANES=("], tmp_path / "a.so")
    assert list(tmp_path.iterdir()) == []


def test_build_runs_without_the_package(tmp_path: Path) -> None:
    """The build calls it in an environment that holds neither torch nor hapvr."""
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, build.__file__], cwd=tmp_path, check=True, timeout=60)
