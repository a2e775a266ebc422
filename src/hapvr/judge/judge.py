"""The judge: from evidence to a verdict, the same on every surface.

A stretch of two videos is judged by an additive model of its evidence (`additive_model`), which gives the odds of a
copy against a look-alike: against the strangers that are nearest to a video, not against any video. The best stretch
stands for the pair; stretches are copies one by one, so that a compilation matches each of its sources. Where the odds
are undecided and both files are at hand, a few instants are decoded and compared at full size (`second_look`), which
counts together with the odds before it.

The prior is the share of copies among the pairs that are worth a comparison, one number for all commands. Odds are
bounded by what the videos of the fit could show: a share e = 3 / n of n videos may have a look-alike of which the fit
saw none (the rule of three), so that odds stay below n / 3 times the prior's, however strong the evidence is.

A library can say what log odds mean among its own videos (`recalibration`): a line, offset + slope * log odds, which
never changes the order of two pairs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hapvr.config import from_mapping
from hapvr.errors import ConfigError, WeightsError
from hapvr.judge.additive_model import AdditiveModel
from hapvr.judge.evidence import Evidence, PairFrames, Stretch, find_candidates, find_stretches
from hapvr.judge.recalibration import JudgeCalibration
from hapvr.judge.second_look import SecondLook
from hapvr.similarity.segments import Segment, SegmentConfig
from hapvr.weights import Part

Kind = Literal["copy", "same scene", "no match"]
Look = Callable[[Stretch], "SecondLook | None"]
"""Takes a second look at the files along a stretch; None where that cannot be done."""

PIXELS = ("pixels", "changes", "moves")  # evidence that libraries without miniatures lack
SCENE = ("likeness", "best")  # evidence of a pair, whether or not a stretch was found
SECOND_LOOK = ("first", "inliers", "structure", "motion")  # "first": the log odds before it
_EVEN = 0.5  # from this probability on it is a copy, or the same scene
_HARDLY_MOVES = 1.5  # grey levels
_MOVES = ("what moves differs", "what moves agrees in part", "what moves agrees")
_MAX_LOOKS = 3  # at the files of a pair
_MAX_OVERLAP = 0.5  # of a stretch with a better one, on both sides


@dataclass(frozen=True)
class Verdict:
    """Whether two videos match, and how probable that is."""

    kind: Kind
    probability: float | None  # that they share footage; None for a model without a judge, as the next three
    scene_probability: float | None  # that they show the same scene or event, or share footage
    prior: float | None  # probability of a copy before the comparison, which `probability` was computed with
    false_per_million: float | None  # estimated pairs of unrelated videos that look as much like a copy
    reason: str  # the evidence in a sentence
    second_look: bool = False  # whether the files were looked at a second time
    evidence: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of the best stretch

    @property
    def match(self) -> bool:
        """Whether they share footage."""
        return self.kind == "copy"

    def to_json(self) -> dict[str, Any]:
        """What every command and answer says of it."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "kind"}
        return {"verdict": self.kind, "match": self.match, **plain, "evidence": dict(self.evidence)}


@dataclass(frozen=True)
class Decision:
    """A verdict, and the stretches that it rests on."""

    verdict: Verdict
    segments: tuple[Segment, ...]  # stretches that are copies, the most probable first
    log_odds: float = -math.inf  # of the best stretch, by the judge as it was fitted
    best: Stretch | None = dataclasses.field(default=None, compare=False)


@dataclass(frozen=True)
class Judge:
    """What evidence means for a model's videos. Fitted by `hapvr.judge_fitting`."""

    stretch: AdditiveModel  # of a stretch, with pixels
    stretch_without_pixels: AdditiveModel
    instant: AdditiveModel  # of a single frame, with pixels
    instant_without_pixels: AdditiveModel
    second_look: AdditiveModel
    scene: AdditiveModel
    tail: tuple[tuple[float, float], ...]  # log odds, and how many of a million unrelated pairs have more; ascending
    videos: int  # that the fit saw
    prior: float = 0.3
    undecided: tuple[float, float] = (0.5, 4.0)  # log odds between which files are looked at a second time
    offset: float = 0.0  # what log odds mean among the videos of a library: this,
    slope: float = 1.0  # and this times the log odds
    candidates: SegmentConfig | None = None  # how the fit found stretches; None: as the model finds segments

    def recalibrate(self, calibration: JudgeCalibration) -> Judge:
        """The judge with what a library's own videos say of its log odds, in place of what another has said.

        The videos of the library add to those of the fit: what neither has seen is rarer.
        """
        return dataclasses.replace(
            self,
            offset=calibration.offset,
            slope=calibration.slope,
            tail=tuple(calibration.tail),
            videos=self.videos + calibration.videos,
        )

    def choose_config(self, config: SegmentConfig) -> SegmentConfig:
        """How the stretches that it judges are found: as when it was fitted, or as given if it does not say that."""
        return config if self.candidates is None else self.candidates

    def decide(
        self, pair: PairFrames, config: SegmentConfig, *, prior: float | None = None, look: Look | None = None
    ) -> Decision:
        """Whether, where and how two videos match.

        Args:
            pair: their frames.
            config: how the model finds segments; stretches are found as `choose_config` says.
            prior: probability of a copy before the comparison; the judge's own if None.
            look: takes a second look at the files; None if they are not at hand.
        """
        prior = self.prior if prior is None else prior
        config = self.choose_config(config)
        short = min(pair.forth.shape) < config.min_frames
        return self._decide(pair, find_stretches(pair, config), short, prior, look)

    def decide_through(
        self,
        pair: PairFrames,
        config: SegmentConfig,
        frames: tuple[NDArray[np.bool_], NDArray[np.bool_]],
        *,
        prior: float | None = None,
    ) -> Decision | None:
        """What `decide` says without a second look; None, and that sooner, if no copy goes through these frames.

        Args:
            pair: their frames.
            config: as in `decide`.
            frames: some of A [Ta] and some of B [Tb].
            prior: probability of a copy before the comparison; the judge's own if None.
        """
        prior = self.prior if prior is None else prior
        config = self.choose_config(config)
        short = min(pair.forth.shape) < config.min_frames
        candidates = find_candidates(pair, config)
        odds = self.judge_stretches([one.stretch for one in candidates if one.meets(*frames)], short=short)
        if not any(self.probability(own, prior) >= _EVEN for own in odds):
            return None
        return self._decide(pair, [one.stretch for one in candidates], short, prior, None)

    def _decide(
        self, pair: PairFrames, stretches: Sequence[Stretch], short: bool, prior: float, look: Look | None
    ) -> Decision:
        odds = self.judge_stretches(stretches, short=short)
        order = sorted(range(len(stretches)), key=lambda place: -odds[place])
        looks: dict[int, SecondLook] = {}
        if order and look is not None and not short:  # a picture has no movement to compare
            looks = self._look_again(stretches, odds, order, look, prior)
            order.sort(key=lambda place: -odds[place])
        looked = looks.get(order[0]) if order else None
        if looked is None and looks:
            looked = next(iter(looks.values()))
        best = odds[order[0]] if order else -math.inf
        probability = self.probability(best, prior)
        scene = max(probability, self._judge_scene(pair, prior))
        kind: Kind = "copy" if probability >= _EVEN else "same scene" if scene >= _EVEN else "no match"
        copies = [stretches[place] for place in order if self.probability(odds[place], prior) >= _EVEN]
        evidence = vars(stretches[order[0]].evidence) if order else {}
        known = {name: value for name, value in evidence.items() if not math.isnan(value)}
        if looked is not None:
            known |= {f"second_look_{name}": float(value) for name, value in dataclasses.asdict(looked).items()}
        verdict = Verdict(
            kind, probability, scene, prior, self.false_per_million(best),
            _explain(stretches[order[0]] if order else None, looked), looked is not None, known,
        )  # fmt: skip
        segments = tuple(one.segment for one in _drop_overlapping(copies))
        return Decision(verdict, segments, float(best), stretches[order[0]] if order else None)

    def _look_again(
        self, stretches: Sequence[Stretch], odds: NDArray[np.float64], order: Sequence[int], look: Look, prior: float
    ) -> dict[int, SecondLook]:
        """Look at undecided stretches, the best first, until one is a copy; changes their odds.

        If none is, those that were not looked at are none either.
        """
        looks: dict[int, SecondLook] = {}
        if odds[order[0]] >= self.undecided[1]:
            return looks
        undecided = [place for place in order if odds[place] > self.undecided[0]]
        for place in undecided[:_MAX_LOOKS]:
            found = look(stretches[place])
            if found is None:
                return looks
            looks[place] = found
            odds[place] = self.judge_second_look(found, float(odds[place]))
            if self.probability(odds[place], prior) >= _EVEN:
                return looks
        for place in undecided[_MAX_LOOKS:]:
            odds[place] = min(odds[place], self.undecided[0])
        return looks

    def may_be_copies(
        self, pair: PairFrames, config: SegmentConfig, *, prior: float | None = None, min_probability: float = _EVEN
    ) -> bool:
        """Whether `decide` could give two videos this probability of a copy, if a second look spoke for it."""
        config = self.choose_config(config)
        odds = self.judge_stretches(find_stretches(pair, config), short=min(pair.forth.shape) < config.min_frames)
        best = max(odds, default=-math.inf)
        return bool(best > self.undecided[0] or self.probability(best, prior) >= min_probability)

    def judge_stretches(self, stretches: Sequence[Stretch], *, short: bool = False) -> NDArray[np.float64]:
        """The log odds of each stretch, at equal priors; `short` if one video has too few frames for a stretch."""
        if not stretches:
            return np.zeros(0)
        known = not math.isnan(stretches[0].evidence.changes)
        model = (
            (self.instant if known else self.instant_without_pixels)
            if short
            else (self.stretch if known else self.stretch_without_pixels)
        )
        return model.log_odds(make_table([one.evidence for one in stretches], model.names))

    def judge_second_look(self, look: SecondLook, first: float) -> float:
        """The log odds after a second look at a stretch that was undecided, with log odds of `first` before it."""
        return float(self.second_look.log_odds([make_look_row(look, first, self.second_look.names)])[0])

    def _judge_scene(self, pair: PairFrames, prior: float) -> float:
        found = measure_scene(pair)
        return self._bound(float(self.scene.log_odds([[found[name] for name in self.scene.names]])[0]), prior)

    def probability(self, log_odds: float, prior: float | None = None) -> float:
        """The probability of a copy, bounded by what the videos of the fit could show."""
        return self._bound(self.offset + self.slope * log_odds, self.prior if prior is None else prior)

    def find_even(self) -> float:
        """The log odds from which on a pair is a copy; infinity if the videos of the fit are too few for that."""
        rest = (self.prior / (1 - self.prior) - self._unseen) / (1 - self._unseen)
        return (-math.log(rest) - self.offset) / self.slope if rest > 0 else math.inf

    @property
    def _unseen(self) -> float:
        """The share of videos that may have a look-alike though none of the fit has."""
        return min(0.5, 3 / self.videos)

    def _bound(self, log_odds: float, prior: float) -> float:
        if log_odds == -math.inf:
            return 0.0
        unseen = self._unseen
        likelihood = 1 / ((1 - unseen) * math.exp(-max(-500.0, min(500.0, log_odds))) + unseen)
        odds = likelihood * prior / (1 - prior) if prior < 1 else math.inf
        return 1.0 if odds == math.inf else odds / (1 + odds)

    def false_per_million(self, log_odds: float) -> float:
        """How many of a million unrelated pairs have such odds or greater."""
        places, rates = np.array(self.tail).T
        return float(np.exp(np.interp(log_odds, places, np.log(rates))))

    def digest(self) -> str:
        """A digest that differs between judges whose log odds cannot be compared.

        `candidates` is no part of it: judges with other candidates were fitted apart, so their models differ.
        """
        plain = [getattr(self, field.name).to_json() for field in dataclasses.fields(self) if _is_model(field)]
        return hashlib.blake2b(json.dumps([plain, list(self.undecided)]).encode(), digest_size=16).hexdigest()

    def to_part(self) -> Part:
        """As a part of a model folder."""
        plain = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            plain[field.name] = value.to_json() if isinstance(value, AdditiveModel) else value
        plain["tail"], plain["undecided"] = [list(pair) for pair in self.tail], list(self.undecided)
        plain["candidates"] = None if self.candidates is None else dataclasses.asdict(self.candidates)
        return Part(plain, {})

    @classmethod
    def from_part(cls, part: Part) -> Judge:
        """What `to_part` made."""
        try:
            fields: dict[str, Any] = dict(part.config)
            for field in dataclasses.fields(cls):
                if _is_model(field):
                    fields[field.name] = AdditiveModel.from_json(fields[field.name])
            fields["tail"] = tuple((float(place), float(rate)) for place, rate in fields["tail"])
            low, high = fields["undecided"]
            if (candidates := fields.get("candidates")) is not None:
                fields["candidates"] = from_mapping(SegmentConfig, candidates)
            return cls(**(fields | {"undecided": (float(low), float(high))}))
        except (AttributeError, KeyError, TypeError, ValueError, ConfigError) as error:
            raise WeightsError(f"The judge of this model cannot be read: {error!r}. Copy the model again.") from error


def _is_model(field: dataclasses.Field[Any]) -> bool:
    return field.type == "AdditiveModel"


def make_table(evidence: Sequence[Evidence], names: Sequence[str]) -> NDArray[np.float64]:
    """Evidence by name, [N, names]."""
    return np.array([[getattr(one, name) for name in names] for one in evidence], np.float64).reshape(-1, len(names))


def make_look_row(look: SecondLook, first: float, names: Sequence[str] = SECOND_LOOK) -> list[float]:
    """Evidence of a second look by name, with the log odds before it."""
    return [first if name == "first" else float(getattr(look, name)) for name in names]


def measure_scene(pair: PairFrames) -> dict[str, float]:
    """Evidence that two videos show the same scene, in whatever order."""
    count = max(1, min(pair.forth.shape) // 4)
    return {
        "likeness": pair.likeness,
        "best": float(np.sort(np.partition(pair.mean.ravel(), -count)[-count:]).mean()),
    }


def _drop_overlapping(stretches: Sequence[Stretch]) -> list[Stretch]:
    """The stretches, best first, without those that lie for the most part within a better one on both sides."""
    kept: list[Stretch] = []
    for one in stretches:
        if not any(
            _overlap(one.segment.query, other.segment.query) > _MAX_OVERLAP
            and _overlap(one.segment.target, other.segment.target) > _MAX_OVERLAP
            for other in kept
        ):
            kept.append(one)
    return kept


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The share of `one` that lies in `other`."""
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0])) / max(one[1] - one[0], 1e-9)


def _explain(stretch: Stretch | None, look: SecondLook | None) -> str:
    """The evidence in a sentence."""
    if stretch is None:
        return "No stretch of the two videos is alike in the same order."
    found, count = stretch.evidence, len(stretch.instants)
    alike = _choose(found.similarity, (0.35, 0.6), "hardly alike", "somewhat alike", "closely alike")
    if count > 1:
        step = _choose(found.in_step, (0.2, 0.5), "not in step", "partly in step", "in step")
        said = [f"Along {count} frames they are {alike} and {step}"]
    else:
        said = [f"One frame is {alike}"]
    if math.isnan(found.changes):
        said.append("their pixels are not known, so this is less sure")
    elif count > 1 and found.moves < math.log1p(_HARDLY_MOVES):
        said.append("hardly anything moves")
    elif count > 1:
        said.append(_choose(found.changes, (0.35, 0.65), *_MOVES))
    if look is not None:
        said.append("at full size " + _choose(look.motion, (0.35, 0.65), *_MOVES))
    return "; ".join(said) + "."


def _choose(value: float, limits: tuple[float, float], low: str, middle: str, high: str) -> str:
    return low if value < limits[0] else middle if value < limits[1] else high
