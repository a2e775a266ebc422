"""What an error message suggests."""

from __future__ import annotations

from hapvr.config import suggest


def test_no_more_than_forty_names_are_listed() -> None:
    names = [f"name{number:03}" for number in range(60)]
    assert suggest("zzz", names[:40]) == f"known: {', '.join(names[:40])}."
    assert suggest("zzz", names[:41]) == f"known: {', '.join(names[:40])} and 1 more."
    assert suggest("zzz", names) == f"known: {', '.join(names[:40])} and 20 more."
    assert suggest("zzz", names * 100).endswith(" and 5,960 more.")


def test_a_near_name_is_found_behind_the_first_forty() -> None:
    names = [f"{number:03}" for number in range(60)]
    assert suggest("keep_rates", [*names, "keep_rate"]) == "did you mean 'keep_rate'?"
