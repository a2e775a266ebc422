"""The paper's ablations as settings: for each line of a table, the run that it stands for.

What a table leaves open is read off lines that it shares with another table (`PaperTable.note`): Table 3 keeps 0.06 of
the target frames, since its third line is Table 4's at 0.06; Tables 8 and 10 were run at r_t = r_b = 0.40 and
lambda_f = 4, Table 8 at rho_f = 1, Table 12 at lambda_f = 4. Everything else is as the settings of the run say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from hapvr.config import suggest
from hapvr.errors import ConfigError
from hapvr.paper.tables import Line, PaperTable, find_paper_table
from hapvr.similarity import SimilarityConfig
from hapvr.similarity.chamfer import compute_keep_count
from hapvr.similarity.comparator import DOWNSAMPLING
from hapvr.similarity.network import double_length
from hapvr.training.config import LossesConfig, TrainConfig

# What can be asked for -> the tables of the paper.
STUDIES: Mapping[str, tuple[str, ...]] = {
    "table2": ("losses",),
    "table3": ("modules",),
    "table4": ("topk",),
    "delta": ("delta-v", "delta-f"),
    "rho": ("rho-v", "rho-f"),
    "lambda": ("lambda-f",),
    "rates": ("rates",),
}
# A line of Table 2 -> the term of [losses].
RIVALS: Mapping[str, str] = {
    "MAE": "mae",
    "MSE": "mse",
    "Contrastive": "contrastive",
    "Triplet": "triplet",
    "Circle": "circle",
    "FastAP": "fast_ap",
    "DIR": "dir_ap",
    "BlackBox": "black_box_ap",
    "Smooth-AP": "smooth_ap",
    "QuadLinear-AP": "video_ap",
}
_MODULES_KEEP_RATE = 0.06
_APPENDIX_WEIGHT = 4.0  # lambda_f of Tables 8, 10 and 12
_APPENDIX_RATE = 0.40  # r_t and r_b of Tables 8 and 10
_ALONE = "The frame loss takes no part, which the paper leaves open for this table."
NOTES: Mapping[str, str] = {
    "losses": "Every loss has the weight of the video loss beside the base loss, unless the settings give it one.",
    "modules": f"TopK keeps {_MODULES_KEEP_RATE} of the target frames: the third line is that of Table 4.",
    "delta-v": _ALONE,
    "rho-v": _ALONE,
    "delta-f": f"At lambda_f = {_APPENDIX_WEIGHT:g}, rho_f = 1 and r_t = r_b = {_APPENDIX_RATE:.2f}, as its equal line "
    "in Table 10 has it.",
    "rho-f": f"At lambda_f = {_APPENDIX_WEIGHT:g} and r_t = r_b = {_APPENDIX_RATE:.2f}, as its equal line in Table 12 "
    "has it.",
    "rates": f"At lambda_f = {_APPENDIX_WEIGHT:g}, as its equal line in Table 11 has it.",
}

_Terms = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Row:
    """A line of a table of the paper, and the settings of its runs."""

    table: str
    number: int  # of the line, from 1
    keys: tuple[str, ...]
    config: TrainConfig

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{self.table}-line-{self.number}"


def study_tables(study: str) -> list[PaperTable]:
    """The tables of the paper that a study repeats.

    >>> [table.number for table in study_tables("delta")]
    [7, 8]
    """
    if study not in STUDIES:
        raise ConfigError(f"there is no study '{study}'; {suggest(study, list(STUDIES))}")
    return [find_paper_table(name) for name in STUDIES[study]]


def plan_rows(table: PaperTable, config: TrainConfig) -> list[Row]:
    """The runs of a table, one for each line of the paper, all as `config` says but for what the table varies.

    >>> rows = plan_rows(find_paper_table("topk"), TrainConfig())
    >>> [row.config.similarity.temporal_keep_rate for row in rows]
    [0.0, 0.03, 0.06, 0.1, 0.2, 0.3, 1.0]
    """
    return [
        Row(table.name, number, line.keys, _vary(table.name, line, config))
        for number, line in enumerate(table.lines, 1)
    ]


def count_kept(config: SimilarityConfig, frames: int) -> int:
    """K': how many columns temporal aggregation keeps of each row, for a target of `frames` frames.

    psi leaves one column of four; a short target is doubled first.

    >>> paper = SimilarityConfig()
    >>> [count_kept(paper, frames) for frames in (28, 199, 200, 400)]
    [1, 1, 2, 3]
    """
    columns = double_length(frames, config.min_frames)
    columns = columns // DOWNSAMPLING if config.comparator else columns
    if config.temporal == "topk":
        return compute_keep_count(columns, config.temporal_keep_rate)
    return columns if config.temporal == "average" else 1


# --- what each table varies ------------------------------------------------------------------------------------------


def _vary(table: str, line: Line, config: TrainConfig) -> TrainConfig:
    keys = line.keys
    paper = LossesConfig().terms
    base = {name: dict(config.losses.terms.get(name, paper[name])) for name in ("infonce", "sshn", "range")}
    video = _get_term(config, "video_ap", paper["video_ap"]["weight"])
    frame = _get_term(config, "frame_ap", paper["frame_ap"]["weight"])
    if table == "losses":
        term = _get_term(config, RIVALS[keys[0]], video["weight"])
        term.pop("include_self", None)  # only QuadLinear-AP has it: all losses are compared on the same positives
        return _replace_settings(config, base | {RIVALS[keys[0]]: term})
    if table == "modules":
        _, topk, with_video, with_frame = (key == "yes" for key in keys)
        terms = base | ({"video_ap": video} if with_video else {}) | ({"frame_ap": frame} if with_frame else {})
        return _replace_settings(config, terms, keep_rate=_MODULES_KEEP_RATE if topk else 0.0)
    if table == "topk":
        return _replace_settings(config, base | {"video_ap": video}, keep_rate=float(keys[0]))
    if table in ("delta-v", "rho-v"):
        return _replace_settings(config, base | {"video_ap": video | {table[:-2]: float(keys[0])}})
    both = base | {"video_ap": video, "frame_ap": frame}
    if table == "lambda-f":
        return _replace_settings(config, both | {"frame_ap": frame | {"weight": float(keys[0])}})
    both["frame_ap"] = frame | {"weight": _APPENDIX_WEIGHT}
    if table == "rates":
        return _replace_settings(config, both, rates=(float(keys[0]), float(keys[1])))
    if table == "delta-f":
        both["frame_ap"] |= {"delta": float(keys[0]), "rho": 1.0}
    elif table == "rho-f":
        both["frame_ap"] |= {"rho": float(keys[0])}
    else:
        raise ConfigError(f"Table '{table}' of the paper is no ablation; {suggest(table, list(NOTES))}")
    return _replace_settings(config, both, rates=(_APPENDIX_RATE, _APPENDIX_RATE))


def _replace_settings(
    config: TrainConfig, terms: _Terms, *, keep_rate: float | None = None, rates: tuple[float, float] | None = None
) -> TrainConfig:
    """The settings with these losses, temporal TopK-Chamfer at this rate, and these rates of frame labels."""
    teacher, similarity = config.teacher, config.similarity
    if rates is not None:
        teacher = dataclasses.replace(teacher, top_rate=rates[0], bottom_rate=rates[1])
    if keep_rate is not None:
        # At 0 it is Chamfer and at 1 the mean: one measure throughout, as in the paper.
        similarity = dataclasses.replace(similarity, temporal="topk", temporal_keep_rate=keep_rate)
    return dataclasses.replace(config, losses=LossesConfig(terms), teacher=teacher, similarity=similarity)


def _get_term(config: TrainConfig, name: str, weight: float) -> dict[str, float]:
    """A term as the settings have it; of this weight where they leave it out."""
    own = config.losses.terms.get(name, {})
    return {**own, "weight": own.get("weight") or weight}
