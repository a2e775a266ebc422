"""The paper's grids as settings, and whole ablations on a bank of noise: stored, resumed, shared, printed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hapvr.cli import main
from hapvr.errors import ConfigError, DataError, StorageError
from hapvr.paper import ablations
from hapvr.paper.ablation_tables import AblationTable, Figure, render
from hapvr.paper.ablations import ablate
from hapvr.paper.compilations import make_compilations
from hapvr.paper.studies import RIVALS, STUDIES, count_kept, plan_rows, study_tables
from hapvr.paper.tables import find_paper_table
from hapvr.similarity import SimilarityConfig, VideoSimilarity
from hapvr.training import TrainConfig, ValidationSet, load_config, train_from_bank
from tests.training.test_cli_train import BARE, QUICK
from tests.training.toy import noise_clips, packed, toy_bank, toy_config


def rows(name: str, *words: str) -> list[TrainConfig]:
    return [row.config for row in plan_rows(find_paper_table(name), load_config("small", words))]


def weights_of(config: TrainConfig) -> dict[str, float]:
    return {name: term.weight for name, term in config.losses.build().terms.items()}


BASE = {"infonce": 1, "sshn": 3, "range": 1}


# --- the grids -------------------------------------------------------------------------------------------------------


def test_table_2_is_the_base_loss_and_each_of_ten() -> None:
    grid = rows("losses")
    assert [weights_of(config) for config in grid] == [BASE | {term: 4} for term in RIVALS.values()]
    assert len(grid) == 10
    own = rows("losses", "losses.circle.weight=0.5", "losses.circle.scale=64", "losses.mae.weight=0")
    assert weights_of(own[4]) == BASE | {"circle": 0.5}
    assert "scale=64" in repr(own[4].losses.build())
    assert weights_of(own[0]) == BASE | {"mae": 4}  # the loss under test is never left out


def test_table_3_adds_one_part_a_line() -> None:
    grid = rows("modules")
    assert [weights_of(config) for config in grid] == [
        BASE,
        BASE,
        BASE | {"video_ap": 4},
        BASE | {"video_ap": 4, "frame_ap": 6},
    ]
    assert [config.similarity.temporal_keep_rate for config in grid] == [0, 0.06, 0.06, 0.06]
    assert grid[2] == rows("topk")[2]  # the same line in both tables


def test_table_4_varies_the_share_that_is_kept_without_the_frame_loss() -> None:
    for config, line in zip(rows("topk"), find_paper_table("topk").lines, strict=True):
        assert (config.similarity.temporal, config.similarity.temporal_keep_rate) == ("topk", float(line.keys[0]))
        assert weights_of(config) == BASE | {"video_ap": 4}


@pytest.mark.parametrize(
    ("table", "term", "key", "values", "others"),
    [
        ("delta-v", "video_ap", "delta", [0.01, 0.05, 0.1, 0.15], {"weight": 4.0}),
        ("rho-v", "video_ap", "rho", [0.02, 0.2, 1, 5, 50], {"weight": 4.0}),
        ("delta-f", "frame_ap", "delta", [0.01, 0.05, 0.1, 0.15], {"weight": 4.0, "rho": 1.0}),
        ("rho-f", "frame_ap", "rho", [0.02, 0.2, 1, 5, 50], {"weight": 4.0}),
        ("lambda-f", "frame_ap", "weight", [2, 4, 6, 8], {}),
    ],
)
def test_the_appendix_varies_one_setting(
    table: str, term: str, key: str, values: list[float], others: dict[str, float]
) -> None:
    grid = rows(table)
    assert [config.losses.terms[term][key] for config in grid] == values
    assert all(
        dict(config.losses.terms[term]) == {key: value, **others} for config, value in zip(grid, values, strict=True)
    )
    assert all(("frame_ap" in weights_of(config)) == (term == "frame_ap") for config in grid)


def test_lines_that_the_paper_shares_between_tables_are_the_same_runs() -> None:
    # What the notes of the tables say of equal lines.
    def line(table: str, number: int) -> tuple[Any, ...]:
        config = rows(table)[number - 1]
        return repr(config.losses.build()), weights_of(config), config.teacher, config.similarity

    assert line("delta-f", 2) == line("rho-f", 3)
    assert line("rho-f", 4) == line("rates", 3)
    assert line("lambda-f", 2) == line("rates", 2)
    rates = [(config.teacher.top_rate, config.teacher.bottom_rate) for config in rows("rates")]
    assert rates == [(0.3, 0.3), (0.35, 0.35), (0.4, 0.4), (0.45, 0.45), (0.3, 0.4), (0.4, 0.3)]


def test_every_study_has_lines_for_all_lines_of_its_tables() -> None:
    for study in STUDIES:
        for table in study_tables(study):
            assert [row.keys for row in plan_rows(table, TrainConfig())] == [line.keys for line in table.lines]
    with pytest.raises(ConfigError, match="did you mean 'table2'"):
        study_tables("tabel2")
    with pytest.raises(ConfigError, match="is no ablation"):
        plan_rows(find_paper_table("methods"), TrainConfig())


@pytest.mark.parametrize("frames", [3, 8, 28, 100, 403])
@pytest.mark.parametrize("rate", [0.0, 0.03, 0.2, 0.3, 1.0])
def test_kept_columns_are_those_of_the_network(frames: int, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimilarityConfig(dims=4, temporal_keep_rate=rate)
    seen: list[int] = []

    def aggregate(_: VideoSimilarity, matrices: Tensor, lengths: tuple[int, int], **masks: Tensor | None) -> Tensor:
        assert lengths == (8, frames)
        assert set(masks.values()) <= {None}
        seen.append(matrices.shape[-1])
        return matrices.sum((-2, -1))

    monkeypatch.setattr(VideoSimilarity, "aggregate_time", aggregate)
    VideoSimilarity(config).score(torch.randn(8, 2, 4), torch.randn(frames, 2, 4))
    assert count_kept(config, frames) == max(1, round(rate * seen[0]))


def test_kept_columns_of_other_measures() -> None:
    assert count_kept(SimilarityConfig(temporal="chamfer"), 400) == 1
    assert count_kept(SimilarityConfig(temporal="average"), 400) == 100
    assert count_kept(SimilarityConfig(comparator=False, temporal_keep_rate=0.5, min_frames=1), 400) == 200


# --- compilations ----------------------------------------------------------------------------------------------------


def many(targets: int = 9, queries: int = 4) -> ValidationSet:
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(3, 40, (targets,), generator=generator).tolist()
    videos = [torch.randn(length, 2, 4, generator=generator) for length in lengths]
    relevant = torch.rand(queries, targets, generator=generator) < 0.2
    return ValidationSet([torch.randn(5, 2, 4, generator=generator) for _ in range(queries)], videos, relevant)


def test_a_compilation_by_hand() -> None:
    videos = [torch.full((2, 1, 1), float(number)) for number in range(3)]
    given = ValidationSet(videos[:2], videos, torch.tensor([[True, False, False], [False, False, True]]))
    long, parts = make_compilations(given, frames=6)
    (part,) = parts
    assert sorted(part) == [0, 1, 2]
    assert long.targets[0].flatten().tolist() == [float(number) for number in part for _ in range(2)]
    assert long.relevant.tolist() == [[True], [True]]


@pytest.mark.parametrize("frames", [1, 30, 70])
def test_compilations_agree_with_a_loop_over_their_parts(frames: int) -> None:
    given = many()
    long, parts = make_compilations(given, frames=frames, rounds=3, seed=1)
    assert len(long.targets) == len(parts)
    for number, part in enumerate(parts):
        frames_of = [frame for each in part for frame in given.targets[each]]
        assert torch.equal(long.targets[number], torch.stack(frames_of))
        assert len(frames_of) >= frames
        for query in range(4):
            assert bool(long.relevant[query, number]) == any(bool(given.relevant[query, each]) for each in part)
    taken = sorted(each for part in parts for each in part)
    assert taken == sorted(3 * list(range(9)))  # each target once a round
    assert make_compilations(given, frames=frames, rounds=3, seed=1).parts == parts


def test_compilations_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(DataError, match=r"together have \d+ frames, and a compilation needs 4000"):
        make_compilations(many(), frames=4000)
    with pytest.raises(ConfigError, match="at least 1"):
        make_compilations(many(), frames=0)


# --- whole ablations -------------------------------------------------------------------------------------------------


def benchmark(seed: int = 9, repeats: int = 1) -> ValidationSet:
    """So much noise that figures lie in the middle, and differ from network to network."""
    bank, generator = toy_bank(seed=seed), torch.Generator().manual_seed(100 + seed)
    noise = 0.5 * torch.randn(bank.strong.regions[:, 0].shape, generator=generator)
    queries = torch.nn.functional.normalize(bank.strong.regions[:, 0].float() + noise, dim=-1)
    targets = [views[0].float().repeat(repeats, 1, 1) for views in bank.weak.regions]
    return ValidationSet(list(queries), targets, torch.eye(8, dtype=torch.bool))


def settings(folder: Path, *words: str) -> TrainConfig:
    return toy_config(f"run.folder={folder}", "schedule.steps=3", *words)


def toy(
    study: str, config: TrainConfig, *, seeds: tuple[int, ...] = (0, 1), **options: Any
) -> tuple[list[AblationTable], list[str]]:
    lines: list[str] = []
    given = options.pop("benchmarks", {"toy": benchmark()})
    return ablate(study, toy_bank(), config, given, seeds=seeds, report=lines.append, **options), lines


def trained(lines: list[str]) -> int:
    return sum(line.startswith("step 3/3") for line in lines)


def test_an_ablation_is_the_runs_it_says_it_is(tmp_path: Path) -> None:
    config = settings(tmp_path)
    (table,), lines = toy("table3", config, lines=(1, 4))
    assert trained(lines) == 4
    assert [line.row.keys for line in table.lines] == [find_paper_table("modules").lines[n].keys for n in (0, 3)]
    for line, row in zip(table.lines, (0, 3), strict=True):
        values = []
        for seed in (0, 1):
            own = plan_rows(find_paper_table("modules"), config)[row].config
            model = train_from_bank(toy_bank(), replace(own, run=replace(own.run, seed=seed)))
            values.append(benchmark().measure(model))
        for measure in ("mAP", "uAP"):
            figure = line.figures["toy", measure]
            assert figure.values == tuple(pytest.approx(100 * value[measure]) for value in values)
            assert figure.mean == pytest.approx(50 * sum(value[measure] for value in values))
            assert figure.values[0] != figure.values[1]
    assert table.lines[0].figures["toy", "uAP"].values != table.lines[1].figures["toy", "uAP"].values
    assert lines[-1].startswith("4/4 modules-line-4 (yes, yes, yes, yes) seed 1: toy mAP ")


def test_mean_and_spread_by_hand() -> None:
    figure = Figure((1.0, 2.0, 6.0))
    assert figure.mean == 3.0
    assert figure.spread == pytest.approx(7**0.5)  # squared distances 4, 1 and 9, by n - 1 = 2
    assert (Figure((1.0,)).mean, Figure((1.0,)).spread, Figure(()).mean) == (1.0, None, None)


def test_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    config = settings(tmp_path)
    (first,), lines = toy("table3", config, seeds=(0,), lines=(1, 2))
    assert trained(lines) == 2
    (second,), lines = toy("table3", config, lines=(1, 2))
    assert trained(lines) == 2  # of the second seed
    assert second.lines[0].figures["toy", "mAP"].values[:1] == first.lines[0].figures["toy", "mAP"].values
    _, lines = toy("table3", config, lines=(1, 2))
    assert trained(lines) == 0


def test_another_benchmark_is_measured_with_the_networks_that_are_there(tmp_path: Path) -> None:
    config = settings(tmp_path)
    toy("table3", config, seeds=(0,), lines=(3,))
    both = {"toy": benchmark(), "other": benchmark(4, repeats=2)}
    (table,), lines = toy("table3", config, seeds=(0,), lines=(3,), benchmarks=both)
    assert trained(lines) == 0
    own = plan_rows(find_paper_table("modules"), config)[2].config
    expected = both["other"].measure(train_from_bank(toy_bank(), own))
    assert table.lines[0].figures["other", "uAP"].values == pytest.approx((100 * expected["uAP"],))
    # A benchmark that changed under its name is another one.
    changed = replace(benchmark(), relevant=torch.eye(8, dtype=torch.bool).flip(0))
    (table,), lines = toy("table3", config, seeds=(0,), lines=(3,), benchmarks={"toy": changed})
    assert trained(lines) == 0
    expected = changed.measure(train_from_bank(toy_bank(), own))
    assert table.lines[0].figures["toy", "mAP"].values == pytest.approx((100 * expected["mAP"],))


def test_damaged_files_cost_their_run_and_nothing_else(tmp_path: Path) -> None:
    config = settings(tmp_path)
    (before,), _ = toy("table3", config, seeds=(0,), lines=(1, 2, 3))
    folder = tmp_path / "ablations"
    (folder / "modules-line-1-seed-0.json").write_text('{"format": ')
    network = folder / "modules-line-2-seed-0.safetensors"
    network.write_bytes(network.read_bytes()[:-1])
    two = {"toy": benchmark(), "other": benchmark(4)}
    (after,), lines = toy("table3", config, seeds=(0,), lines=(1, 2, 3), benchmarks=two)
    assert trained(lines) == 2
    assert any("modules-line-2-seed-0 is damaged or gone" in line for line in lines)
    assert [line.figures["toy", "uAP"] for line in after.lines] == [line.figures["toy", "uAP"] for line in before.lines]
    (folder / "modules-line-1-seed-0.json").write_text("[]")
    with pytest.raises(StorageError, match="is no record of an ablation"):
        toy("table3", config, seeds=(0,), lines=(1,))


def test_figures_of_other_settings_do_not_come_into_the_table(tmp_path: Path) -> None:
    toy("table3", settings(tmp_path), seeds=(0,), lines=(1,))
    with pytest.raises(ConfigError, match=r"other settings \(optimiser\.rate: 0\.001 -> 0\.01\)"):
        toy("table3", settings(tmp_path, "optimiser.rate=0.01"), seeds=(0,), lines=(1,))
    with pytest.raises(ConfigError, match=r"bank\.strong: \[8, 2, 8, 2, 16\] -> \[8, 3"):
        ablate("table3", toy_bank(strong=3), settings(tmp_path), {"toy": benchmark()}, seeds=(0,), lines=(1,))
    toy("table3", settings(tmp_path, "run.log_every=1"), seeds=(0,), lines=(1,))  # changes nothing that is learnt


def test_a_record_from_before_a_setting_existed_is_used_while_that_has_its_default(tmp_path: Path) -> None:
    toy("table3", settings(tmp_path), seeds=(0,), lines=(1,))
    (path,) = tmp_path.rglob("modules-line-1-seed-0.json")
    record = json.loads(path.read_text())
    for section, key in (("data", "whole_frames"), ("data", "fps"), ("views", "temporal_edits")):
        del record["settings"][section][key]
    path.write_text(json.dumps(record))
    assert trained(toy("table3", settings(tmp_path), seeds=(0,), lines=(1,))[1]) == 0
    with pytest.raises(ConfigError, match=r"other settings \(data\.whole_frames: False -> True\)"):
        toy("table3", settings(tmp_path, "data.whole_frames=true"), seeds=(0,), lines=(1,))


def test_lines_that_training_cannot_tell_apart_may_share_it(tmp_path: Path) -> None:
    # The bank's clips have 8 frames, 2 columns: K' is 1 up to k_t = 0.3 (0.6, rounded) and 2 at 1.
    noise = torch.nn.functional.normalize(
        torch.randn(8, 400, 2, 16, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    long = {"long": replace(benchmark(), targets=list(noise))}
    given: dict[str, Any] = {"seeds": (0,), "benchmarks": long, "lines": (1, 2, 3, 6, 7)}
    (apart,), lines = toy("table4", settings(tmp_path / "apart"), **given)
    assert trained(lines) == 5
    (shared,), lines = toy("table4", settings(tmp_path / "shared"), **given, share_training=True)
    assert trained(lines) == 2
    assert [line.trained_as for line in shared.lines] == [None, *["topk-line-1"] * 3, None]
    assert [line.kept_in_training for line in shared.lines] == [1, 1, 1, 1, 2]
    assert [line.kept["long"] for line in shared.lines] == [(k, k) for k in (1, 3, 6, 30, 100)]
    for one, two in zip(apart.lines, shared.lines, strict=True):
        assert one.figures["long", "uAP"].values == pytest.approx(two.figures["long", "uAP"].values)
    assert len({line.figures["long", "uAP"].values for line in shared.lines}) > 3  # k_t acts on long targets
    assert "line 2 from topk-line-1, 3 from" in render(shared)
    assert len(list((tmp_path / "shared" / "ablations").glob("*.safetensors"))) == 2
    # Without sharing, networks that were shared do not count.
    _, lines = toy("table4", settings(tmp_path / "shared"), **given | {"lines": (1, 2)})
    assert trained(lines) == 1


def test_a_shared_network_that_is_gone_is_trained_again(tmp_path: Path) -> None:
    toy("table4", settings(tmp_path), seeds=(0,), lines=(1, 2), share_training=True)
    (tmp_path / "ablations" / "topk-line-1-seed-0.safetensors").unlink()
    (tmp_path / "ablations" / "topk-line-2-seed-0.json").unlink()
    (table,), lines = toy("table4", settings(tmp_path), seeds=(0,), lines=(1, 2), share_training=True)
    assert trained(lines) == 1
    assert table.lines[1].figures["toy", "mAP"].values


def test_a_run_that_overflows_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    config = settings(tmp_path, "losses.video_ap.weight=1e39")
    (table,), _ = toy("table3", config, lines=(1, 3))
    assert table.lines[0].figures["toy", "mAP"].mean is not None
    assert table.lines[1].figures["toy", "mAP"].mean is None
    assert len(table.lines[1].failed) == 2
    assert "seed 1: step 1: the loss or its gradient is inf" in table.lines[1].failed[1]
    text = render(table)
    assert "failed" in text
    assert "modules-line-3, seed 0: step 1" in text
    assert json.loads((tmp_path / "ablations" / "modules-line-3-seed-0.json").read_text())["failed"]


def test_what_cannot_be_run_is_refused_before_any_training(tmp_path: Path) -> None:
    bank = toy_bank()
    blind = replace(bank, weak=replace(bank.weak, frames=None), strong=replace(bank.strong, frames=None))
    given: dict[str, Any] = {"seeds": (0,), "report": lambda _: None}
    with pytest.raises(ConfigError, match="'modules-line-4' has the frame loss"):
        ablate("table3", blind, settings(tmp_path), {"toy": benchmark()}, **given)
    with pytest.raises(ConfigError, match="needs at least one benchmark"):
        ablate("table3", bank, settings(tmp_path), {}, **given)
    with pytest.raises(ConfigError, match="has a line 9"):
        ablate("table3", bank, settings(tmp_path), {"toy": benchmark()}, lines=(9,), **given)
    with pytest.raises(DataError, match="fewer than a batch of 9"):
        ablate("table3", bank, settings(tmp_path, "data.batch=9"), {"toy": benchmark()}, **given)
    assert not list(tmp_path.rglob("*.safetensors"))


# --- printed ---------------------------------------------------------------------------------------------------------


def test_tables_are_printed_beside_the_papers(tmp_path: Path) -> None:
    (table,), _ = toy("table4", settings(tmp_path), lines=(2, 7))
    text = render(table).splitlines()
    assert text[0].startswith("Table 4, topk: The share k_t")
    assert text[2].split() == ["K'", "ours", "paper"]
    assert text[3].split() == ["training", "toy", "toy", "EVVE", "FIVR-5K", "EVVE", "FIVR-5K"]
    assert text[6].startswith("0.03  TopK")
    assert text[7].startswith("1.00  average")
    assert " ±" in text[6]
    assert text[6].split()[-8:] == ["68.98", "89.65", "88.69", "80.91", "80.70", "79.01", "77.01", "68.21"]
    assert "68.98" in text[6][text[4].index("mAP", text[4].index("uAP")) :]  # under its heading
    assert any(line.startswith("toy: 8 queries, 8 targets of 8 to 8 frames (median 8)") for line in text)
    assert any("Each run: 3 steps of 4 videos" in line for line in text)
    markdown = render(table, format="markdown").splitlines()
    assert markdown[2].startswith(
        "| k_t | is | K' training | K' toy median, longest | ours toy mAP | ours toy uAP | paper EVVE mAP"
    )
    assert markdown[4].startswith("| 0.03 | TopK | 1 | 1, 1 | ")
    assert len({line.count("|") for line in markdown[2:6]}) == 1
    with pytest.raises(ConfigError, match="did you mean 'text'"):
        render(table, format="txt")
    record = table.to_json()
    assert record["lines"][0]["keys"] == ["0.03", "TopK"]
    assert record["lines"][0]["figures"][0] == 68.98
    assert record["lines"][0]["ours"]["toy"]["mAP"]["values"] == list(table.lines[0].figures["toy", "mAP"].values)
    assert json.loads(json.dumps(record)) == record


# --- as a program ----------------------------------------------------------------------------------------------------


def regions(videos: int, frames: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.nn.functional.normalize(torch.randn(frames, 9, 512, generator=generator), dim=-1) for _ in range(videos)
    ]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("ablation")
    packed(str(folder / "packed"), noise_clips(4))
    ValidationSet(regions(2, 5, 0), regions(3, 7, 1), torch.eye(2, 3, dtype=torch.bool)).save(folder / "a.safetensors")
    return [
        "table4", "tiny", f"data.frames={folder / 'packed'}", f"run.folder={folder / 'run'}", *QUICK,
        "--benchmark", f"a={folder / 'a.safetensors'}", "--seeds", "1", "--lines", "1,2", "--compilation-frames", "10",
    ]  # fmt: skip


def test_the_command_makes_the_bank_and_prints_the_table(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["ablate", *words, "--json"])
    out, err = capsys.readouterr()
    assert exit.value.code == 0, err
    (table,) = json.loads(out)
    assert [line["keys"][0] for line in table["lines"]] == ["0.00", "0.03"]
    assert set(table["lines"][0]["ours"]) == {"a", "a-10"}
    assert "2/2 topk-line-2" in err
    folder = Path(next(word for word in words if word.startswith("run.folder=")).partition("=")[2])
    parts = json.loads((folder / "ablations" / "compilations-a-10.json").read_text())
    assert all(set(part) <= {0, 1, 2} for part in parts)


def test_on_a_bare_node(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    program = BARE.replace("'hapvr.training'", "'hapvr.paper.ablations'")
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Table 4, topk")
    assert ablations.main([*words, "--benchmark", "nothing"]) == 2
    assert capsys.readouterr().err == "error: a benchmark is NAME=FEATURES or NAME=FEATURES,TRUTH; got 'nothing'.\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["bank.weak=0", "bank.strong=0"], "an ablation runs from a bank"),
        (["--lines", "one"], "lines are numbers such as 1,3"),
        (["--benchmark", "b=nowhere.safetensors"], "is no validation set that"),
        (["--format", "latex"], "format has no value"),
    ],
)
def test_wrong_words_are_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str], change: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["ablate", *words, *change])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


def test_table_2_compares_all_losses_on_the_same_positives() -> None:
    grid = [row.config for row in plan_rows(find_paper_table("losses"), load_config("paper"))]
    assert not any(term.include_self for config in grid for term in config.losses.build().terms.values())
    assert all(
        "include_self" in row.config.losses.terms["video_ap"]
        for row in plan_rows(find_paper_table("topk"), load_config("paper"))
    )
