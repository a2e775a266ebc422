"""What an evaluation measured, and the files that it is written to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hapvr.errors import ConfigError
from hapvr.evaluation.protocol import Evaluation, format_rows
from hapvr.evaluation.score_files import Scores, require_kind
from hapvr.evaluation.scoring import Scoring
from hapvr.evaluation.segment_metrics import SegmentMetrics
from hapvr.evaluation.tracks import TrackResult
from hapvr.features.video_extraction import ExtractionFailure
from hapvr.storage import StrPath, require_outputs, write_json, write_text


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """What `evaluate` measured, and on which features or scores."""

    evaluation: Evaluation | None  # None while chunks of other shards are missing, and where predictions were measured
    scores: Scores | None  # None while chunks are missing
    source: Path  # the features, saved scores or predictions that were measured
    scoring: Scoring | None = None  # None where scores were read
    segments: Mapping[str, SegmentMetrics] | None = None  # over all queries ("") and by group; None if not measured
    tracks: tuple[TrackResult, ...] = ()  # predicted pairs and segments, by the protocols of VSC2022 and VCSL
    benchmark: str = ""  # its name
    verdicts: Mapping[str, Any] | None = None  # the report of `hapvr.verdict_evaluation`; None if not measured
    insets: int = 0  # queries that show another video in a window, which was looked for too
    failed: tuple[ExtractionFailure, ...] = ()  # videos that have no features
    warnings: Mapping[str, list[str]] = field(default_factory=dict)  # of videos that are damaged, by id
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Everything but the scores, as JSON holds it."""
        record = {} if self.evaluation is None else self.evaluation.to_json()
        if self.tracks:
            record |= {"benchmark": self.benchmark, "tracks": [track.to_json() for track in self.tracks]}
        if self.verdicts is not None:
            record["verdicts"] = dict(self.verdicts)
        if self.scoring is None:
            if self.evaluation is None:
                return record | {"predictions": str(self.source), "warnings": dict(self.warnings)}
            return record | {"scores": str(self.source)}
        scoring = self.scoring
        record |= {"features": str(self.source), "warnings": dict(self.warnings)}
        record["failed"] = [asdict(one) for one in self.failed]
        record["insets"] = self.insets
        record["scoring"] = {"pairs": scoring.pairs, "chunks": scoring.chunks, "finished": scoring.finished,
                             "wall_s": self.wall_s, "waited_s": scoring.waited_s,
                             "scored_s": scoring.scored_s}  # fmt: skip
        if self.segments is not None:
            record["segments"] = {name: one.to_json() for name, one in self.segments.items()}
        return record

    def rows(self) -> list[dict[str, Any]]:
        """One row for each figure, as `Evaluation.rows` has them; those of tracks have no counts."""
        rows = [] if self.evaluation is None else self.evaluation.rows()
        return rows + [
            {"benchmark": self.benchmark, "task": track.name, "figure": name, "group": "", "value": value}
            for track in self.tracks
            for name, value in track.figures.items()
        ]

    def write(self, path: StrPath) -> None:
        """Write the report as JSON, or the figures alone as CSV, as the suffix says."""
        if Path(path).suffix.lower() == ".csv":
            write_text(path, format_rows(self.rows()) if self.tracks or self.evaluation is not None else "")
        else:
            write_json(path, self.to_json())


def require_report_files(
    saved: Sequence[StrPath | None], output: Sequence[StrPath], *, inputs: Iterable[StrPath | None]
) -> None:
    """Scoring may take hours: what cannot be written at the end is said at once. The first of `saved` are scores."""
    if saved[0] is not None:
        require_kind(saved[0])
    for path in output:
        if Path(path).suffix.lower() not in (".json", ".csv"):
            raise ConfigError(f"A report is written as .json, or its figures as .csv; got '{Path(path).name}'.")
    written = [*output, *(path for path in saved if path is not None)]
    require_outputs(written, inputs=[path for path in inputs if path is not None])


def write_report(report: EvaluationReport, output: Sequence[StrPath]) -> EvaluationReport:
    """Write a report into all files, and return it."""
    for path in output:
        report.write(path)
    return report
