"""hapvr as a model of MTEB, for its video-to-video retrieval tasks (extra `mteb`).

    import mteb
    from hapvr.mteb_model import MTEBSearch

    tasks = mteb.get_tasks(tasks=["VCDBCoreRetrieval", "VSC2022Retrieval", "EVVERetrieval"])
    mteb.evaluate(MTEBSearch("lite"), tasks)

hapvr has no single vector of a video, so this is a search model in MTEB's words (`SearchProtocol`): `index` describes
the corpus, `search` scores queries against all of it. Videos are decoded by hapvr from the files or bytes of the data
set, not by MTEB's decoder: `torchcodec` is not needed. Only the picture is used; tasks of text or audio are refused.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hapvr import __version__
from hapvr.errors import ConfigError, DataError, DecodeError
from hapvr.features import FeatureFile, Features, FeatureWriter
from hapvr.model import DEFAULT, Model, load
from hapvr.similarity import pairwise
from hapvr.storage import StrPath, sha256_tensors

if TYPE_CHECKING:
    from mteb.models import ModelMeta

UNREADABLE = "hapvr: this query could not be read"  # the only result of such a query: MTEB counts it as a miss
_QUERIES_AT_A_TIME = 64
_logger = logging.getLogger(__name__)


class MTEBSearch:
    """A model that MTEB runs in video-to-video retrieval tasks.

    A corpus video that cannot be read gets no score, so it is never found. A query that cannot be read gets a result
    that matches nothing, so it counts as a miss and the figure stays one over all queries. Both are in `failed`, and
    logged.

    Args:
        model_name: a model's name or folder, as `hapvr.load` takes it; "hapvr/lite" is the same as "lite".
        revision: not used; MTEB passes it.
        device: "cpu", "cuda" or "cuda:1"; the GPU if there is one.
        work_folder: where the features of a corpus lie while it is searched; a temporary folder if None.

    Attributes:
        failed: id of each video that could not be read -> why. Of all tasks so far.
    """

    def __init__(
        self,
        model_name: str = DEFAULT,
        revision: str | None = None,  # noqa: ARG002 - MTEB's loaders pass it
        *,
        device: str | None = None,
        work_folder: StrPath | None = None,
        **options: Any,
    ) -> None:
        if unknown := sorted(options):
            raise ConfigError(f"hapvr takes no option '{unknown[0]}' here: give model_name, device and work_folder.")
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.model: Model = load(model_name.removeprefix("hapvr/"), device=place)
        self.model_name = model_name
        self.failed: dict[str, str] = {}
        self._work_folder = work_folder
        self._corpus: _StoredCorpus | None = None

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """What MTEB's results say of the model."""
        from mteb.models import ModelMeta

        parts = (self.model.extractor.backbone, self.model.similarity)
        size = sum(value.numel() for part in parts for value in part.state_dict().values())
        digest = sha256_tensors(self.model.similarity.state_dict())[:8]
        return ModelMeta(
            loader=type(self),
            name=self.model_name if "/" in self.model_name else f"hapvr/{self.model.name}",
            revision=f"{__version__}-{self.model.extractor.digest()[:8]}-{digest}",
            release_date=None,
            languages=None,
            n_parameters=size,
            memory_usage_mb=None,
            max_tokens=None,
            embed_dim=None,
            license="apache-2.0",
            open_weights=True,
            public_training_code=None,
            public_training_data=None,
            framework=["PyTorch"],
            similarity_fn_name=None,
            use_instructions=False,
            training_datasets=set(),
            modalities=["video"],
            model_type=["late-interaction"],
        )

    def index(self, corpus: Any, **_: Any) -> None:
        """Describe the videos of a corpus; `search` compares with these."""
        if self._corpus is not None:
            self._corpus.remove()
            self._corpus = None
        stored = _StoredCorpus(self._work_folder)
        stored.add(self._describe(corpus, "corpus"))
        self._corpus = stored

    @torch.no_grad()
    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, Sequence[str]] | None = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """The scores of the `top_k` best videos of the corpus for each query; of equal ones the smaller id.

        Args:
            queries: MTEB's data set, with the columns id and video.
            top_k: how many of each query.
            top_ranked: per query the only videos that count, in tasks of reranking.
        """
        if self._corpus is None:
            raise ConfigError("there is nothing to search yet: call index with the corpus first.")
        results: dict[str, dict[str, float]] = {}
        batch: list[tuple[str, Tensor]] = []
        for id, features in self._describe(queries, "query"):
            batch.append((id, self.model.similarity.make_descriptors(features.regions.to(self.model.extractor.device))))
            if len(batch) == _QUERIES_AT_A_TIME:
                results |= self._search_batch(batch, top_k, top_ranked)
                batch.clear()
        if batch:
            results |= self._search_batch(batch, top_k, top_ranked)
        return {id: results.get(id, {UNREADABLE: 0.0}) for id in map(str, queries["id"])}

    def _search_batch(
        self, batch: Sequence[tuple[str, Tensor]], top_k: int, top_ranked: Mapping[str, Sequence[str]] | None
    ) -> dict[str, dict[str, float]]:
        assert self._corpus is not None
        ids = self._corpus.ids
        scores = pairwise(self.model.similarity, [video for _, video in batch], self._corpus.stream())
        results = {}
        for (query, _), row in zip(batch, scores.tolist(), strict=True):
            allowed = None if top_ranked is None else set(top_ranked.get(query, ()))
            pairs = [(id, score) for id, score in zip(ids, row, strict=True) if allowed is None or id in allowed]
            best = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:top_k]
            results[query] = dict(best) or {UNREADABLE: 0.0}
        return results

    def _describe(self, rows: Any, kind: str) -> Iterator[tuple[str, Features]]:
        """Features of each video that can be read, without flat and repeated frames."""
        for id, video in _read_videos(rows):
            try:
                yield id, _extract(self.model, video).drop_flat()
            except (DecodeError, DataError) as error:
                self.failed[id] = str(error)
                _logger.warning("the %s '%s' could not be read: %s", kind, id, error)


class _StoredCorpus:
    """Features of a corpus in a file, so that memory does not grow with it. Numbers stand for ids there."""

    def __init__(self, work_folder: StrPath | None) -> None:
        folder = tempfile.mkdtemp(prefix="hapvr-mteb-", dir=work_folder)
        self.remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)  # also when nobody asks
        self._path = Path(folder) / "corpus.h5"
        self.ids: list[str] = []

    def add(self, videos: Iterator[tuple[str, Features]]) -> None:
        with FeatureWriter(self._path, compression=None, sync=False) as writer:
            for id, features in videos:
                writer.add(f"{len(self.ids):08d}", features)
                self.ids.append(id)
        if not self.ids:
            raise DataError("no video of the corpus could be read. Look at `failed`, and at the column 'video'.")

    def stream(self) -> Iterator[Tensor]:
        with FeatureFile.open(self._path) as file:
            for _, features in file.stream([f"{number:08d}" for number in range(len(self.ids))]):
                yield features.regions


def _read_videos(rows: Any) -> Iterator[tuple[str, Any]]:
    """Each id with its video as the data set stores it: undecoded where the column is a `datasets.Video`."""
    columns = list(rows.column_names)
    if "id" not in columns or "video" not in columns:
        raise ConfigError(
            f"a data set with the columns id and video was expected, got {', '.join(columns) or 'none'}. hapvr "
            "compares videos with videos: take tasks of the category v2v."
        )
    feature = rows.features["video"]
    if getattr(feature, "decode", False):
        rows = rows.cast_column("video", dataclasses.replace(feature, decode=False))
    for row in rows:
        yield str(row["id"]), row["video"]


def _extract(model: Model, video: Any) -> Features:
    """The features of a video that is a path, bytes, or a table with either."""
    if isinstance(video, Mapping):
        path, data = video.get("path"), video.get("bytes")
        video = data if data is not None else path
    if isinstance(video, (bytes, bytearray)):
        with tempfile.NamedTemporaryFile(suffix=".video") as file:
            file.write(video)
            file.flush()
            return model.features(file.name)
    if isinstance(video, (str, Path)):
        return model.features(video)
    raise DataError(f"a video as a path or bytes was expected, got a {type(video).__name__}.")
