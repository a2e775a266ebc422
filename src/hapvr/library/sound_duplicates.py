"""What sound says of duplicates: of each link, and of videos with the same sound and other pictures."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence

from hapvr.audio.description import compare_sounds
from hapvr.audio.matching import NOT_INDEXED, SoundEvidence, SoundQuery
from hapvr.library.duplicate_report import Link, SoundPair
from hapvr.library.marks import Pair, make_pair
from hapvr.library.sound_lookup import SoundLookup
from hapvr.library.store import Store

_MAX_PAIRS = 20  # of each video, those with most of the same sound


def add_link_sounds(store: Store, links: Sequence[Link]) -> list[Link]:
    """The links with what the sound of both videos says; files of the same bytes are not compared."""
    catalog = store.catalog()
    done: dict[tuple[str, str], SoundEvidence] = {}
    wanted = sorted((link.a, link.b) for link in links if link.verdict is not None)
    for a, pairs in itertools.groupby(wanted, key=lambda pair: pair[0]):
        keys = {id: int(catalog.keys[catalog.row(id)]) for pair in pairs for id in pair}
        sounds = dict(store.sounds.read(keys.values()))
        for b in keys.keys() - {a}:
            known = keys[a] in sounds and keys[b] in sounds
            done[a, b] = compare_sounds(sounds[keys[a]], sounds[keys[b]]) if known else NOT_INDEXED
    return [dataclasses.replace(link, sound=done.get((link.a, link.b))) for link in links]


def find_sound_pairs(
    store: Store, asking: Collection[int], known: Collection[Pair], progress: Callable[[int], None]
) -> list[SoundPair]:
    """Videos with the same sound, at the same speed: each of the contents that ask, with all others.

    Args:
        store: that holds them.
        asking: keys of contents.
        known: contents that are left out, by their hashes: copies, and those that a person has marked.
        progress: called with the number of contents that were done since the last call.
    """
    catalog = store.catalog()
    hashes = catalog.column("content_hash")
    lookup = SoundLookup(store, complete=True)
    found: dict[Pair, SoundPair] = {}

    def compare(key: int, query: SoundQuery) -> Iterator[tuple[Pair, SoundPair]]:
        others = [one for one in lookup.find_candidates(query) if one != key and catalog.with_key(one)]
        for other, sound in store.sounds.read(others):
            rows = [catalog.with_key(one)[0] for one in (key, other)]
            pair = make_pair(hashes[rows[0]], hashes[rows[1]])
            if pair not in found and pair not in known and (stretches := query.find(sound.peaks)):
                yield pair, SoundPair(catalog.ids[rows[0]], catalog.ids[rows[1]], stretches)

    for key, sound in store.sounds.read(asking):
        if sound.state == "ready" and catalog.with_key(key):
            pairs = sorted(compare(key, SoundQuery(sound.peaks, speeds=(1.0,))), key=lambda one: -one[1].seconds)
            found |= dict(pairs[:_MAX_PAIRS])
        progress(1)
    return sorted(found.values(), key=lambda pair: (-pair.seconds, pair.a, pair.b))
