"""The comparison that other tests rely on can fail."""

from __future__ import annotations

from hapvr.similarity import Segment
from tests.same import is_same


def test_is_same_tells_answers_apart() -> None:
    segment = Segment((0.0, 1.0), (2.0, 3.0), 0.5, backwards=False, path=((0, 1),))
    assert is_same(segment, Segment((0.0, 1.0), (2.0, 3.0), 0.500001, backwards=False, path=((0, 1),)))
    for other in (
        Segment((0.0, 1.0), (2.0, 3.0), 0.5001, backwards=False, path=((0, 1),)),
        Segment((0.0, 1.0), (2.0, 3.0), 0.5, backwards=True, path=((0, 1),)),
        Segment((0.0, 1.0), (2.0, 3.0), 0.5, backwards=False, path=((0, 2),)),
    ):
        assert not is_same(segment, other)
        assert not is_same((segment,), (segment, segment))
    assert is_same({"score": 0.25, "path": [(0, 1)]}, {"score": 0.2500001, "path": ((0, 1),)})
    assert not is_same({"a": 1.0}, {"b": 1.0})
    assert not is_same(True, 1.0)
    assert not is_same(None, 0.0)
