"""What a library holds twice: near-duplicates, clips that are part of others, and parts that two videos share.

Files of the same bytes are known by their hashes. Of all other contents, each asks for those whose frame vectors are
nearest, as a search does; only such pairs are compared, so that the work grows with the number of videos and not with
that of pairs. A pair is a link if its strength, how similar its frames are times how many of them are in step (see
`hapvr.library.aligning`), reaches the threshold: by region vectors, or by pixels (`hapvr.library.pixels`). What of both
videos it covers then says what kind of link it is.

Duplicates form groups. Clips do not: two different clips of one compilation would end in one group with it. Their links
stand beside the groups. Nothing is ever deleted; the copy to keep is a suggestion.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime

import numpy as np

from hapvr.errors import ConfigError
from hapvr.library.duplicates.groups import grouped
from hapvr.library.duplicates.links import compared
from hapvr.library.duplicates.pairs import candidate_pairs, identical, new_keys
from hapvr.library.duplicates.reports import DuplicateProgress, DuplicateReport
from hapvr.library.marks import pair_of, read_marks
from hapvr.library.store import Store
from hapvr.library.tables import NO_KEY, Catalogue
from hapvr.model import Model

THRESHOLD = 0.28
"""Strength from which on a pair is a link. Of 5,700 candidate pairs among real videos that settings are chosen on (the
same road driven twice, exercises on one mat before one camera) the strongest that shows different footage has 0.258; of
drawn films, whose shots are few and alike, 0.212."""
CANDIDATES = 20
"""Contents that each one is compared with at most."""


def find_duplicates(
    store: Store,
    load_model: Callable[[], Model],
    *,
    threshold: float | None = None,
    since: datetime | None = None,
    max_candidates: int = CANDIDATES,
    progress: Callable[[DuplicateProgress], None] | None = None,
) -> DuplicateReport:
    """Find what a library holds twice.

    Args:
        store: the tables of the library.
        load_model: gives the model it was made with; called if there is anything to compare.
        threshold: strength of a link, above 0 and at most 1; `THRESHOLD` if None. Higher is stricter.
        since: only what was added at or after this time, against everything; a time without a zone is local.
        max_candidates: contents that each one is compared with at most.
        progress: called now and then.
    """
    limit = THRESHOLD if threshold is None else threshold
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit <= 1:
        raise ConfigError(f"threshold must be a number above 0 and at most 1, got {threshold!r}.")
    if not isinstance(max_candidates, int) or isinstance(max_candidates, bool) or max_candidates < 1:
        raise ConfigError(f"max_candidates must be a whole number of at least 1, got {max_candidates!r}.")
    begun = time.monotonic()
    catalogue = store.catalogue()
    marks = read_marks(store.library)
    new = new_keys(catalogue, since)
    keys = np.unique(catalogue.keys[catalogue.keys != NO_KEY]).tolist()
    pairs = sorted(candidate_pairs(store, [key for key in keys if key in new], set(keys), max_candidates, progress))
    found = list(identical(catalogue, new))
    marked = 0
    hashes = _hashes(catalogue)
    if progress is not None:
        progress(DuplicateProgress("pairs", 0, len(pairs), 0.0))  # the model is loaded first, which takes a while
    model = load_model() if pairs else None
    for one, other, link in compared(store, model, catalogue, pairs, float(limit), progress):
        if pair_of(hashes[one], hashes[other]) in marks:
            marked += 1
        else:
            found.append(link)
    records = {id: catalogue.record(catalogue.row(id)) for link in found for id in (link.a, link.b)}
    links = sorted(found, key=lambda link: (-link.strength, records[link.a].path, records[link.b].path))
    old = len(keys) - len(new)
    return DuplicateReport(
        groups=grouped(links, records, marks),
        links=tuple(links),
        records=records,
        videos=int((catalogue.keys != NO_KEY).sum()),
        scored=len(pairs),
        pairs=math.comb(len(keys), 2) - math.comb(old, 2),
        marked=marked,
        threshold=float(limit),
        prior=None if model is None or model.calibration is None else model.calibration.prior,
        seconds=time.monotonic() - begun,
    )


def _hashes(catalogue: Catalogue) -> dict[int, str]:
    return {int(key): hash for key, hash in zip(catalogue.keys, catalogue.column("content_hash"), strict=True)}
