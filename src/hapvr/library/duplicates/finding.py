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
from typing import TYPE_CHECKING

import numpy as np

from hapvr.errors import ConfigError
from hapvr.library.duplicates.groups import grouped
from hapvr.library.duplicates.links import compared
from hapvr.library.duplicates.pairs import candidate_pairs, identical, new_keys
from hapvr.library.duplicates.reports import DuplicateProgress, DuplicateReport
from hapvr.library.marks import pair_of, read_marks
from hapvr.library.tables import NO_KEY, Catalogue

if TYPE_CHECKING:
    from hapvr.library.library import Library
    from hapvr.model import Model

THRESHOLD = 0.28
"""Strength from which on a pair is a link. Of 5,700 candidate pairs among real videos that settings are chosen on (the
same road driven twice, exercises on one mat before one camera) the strongest that shows different footage has 0.258; of
drawn films, whose shots are few and alike, 0.212."""
CANDIDATES = 20
"""Contents that each one is compared with at most."""


def duplicates(
    library: Library,
    *,
    threshold: float | None = None,
    since: datetime | None = None,
    most: int = CANDIDATES,
    model: Model | None = None,
    progress: Callable[[DuplicateProgress], None] | None = None,
) -> DuplicateReport:
    """Find what a library holds twice.

    Args:
        library: an open one.
        threshold: strength of a link, above 0 and at most 1; `THRESHOLD` if None. Higher is stricter.
        since: only what was added at or after this time, against everything; a time without a zone is local.
        most: contents that each one is compared with at most.
        model: the library's if None.
        progress: called now and then.
    """
    limit = THRESHOLD if threshold is None else threshold
    if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit <= 1:
        raise ConfigError(f"threshold must be a number above 0 and at most 1, got {threshold!r}.")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise ConfigError(f"most must be a whole number of at least 1, got {most!r}.")
    begun = time.monotonic()
    store, catalogue = library.store, library.store.catalogue()
    marks = read_marks(library.path)
    new = new_keys(catalogue, since)
    keys = np.unique(catalogue.keys[catalogue.keys != NO_KEY]).tolist()
    pairs = sorted(candidate_pairs(store, [key for key in keys if key in new], set(keys), most, progress))
    found = list(identical(catalogue, new))
    marked = 0
    hashes = _hashes(catalogue)
    # Without pairs there is no need of the model, which takes its time to load.
    used = (model or library.model) if pairs else None
    for one, other, link in compared(store, used, catalogue, pairs, float(limit), progress):
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
        prior=None if used is None or used.calibration is None else used.calibration.prior,
        seconds=time.monotonic() - begun,
    )


def _hashes(catalogue: Catalogue) -> dict[int, str]:
    return {int(key): hash for key, hash in zip(catalogue.keys, catalogue.column("content_hash"), strict=True)}
