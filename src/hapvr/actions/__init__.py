"""Actions on duplicates: a plan that people review, doing what it says, and taking it back. Needs no model."""

from __future__ import annotations

from hapvr.actions.apply import ApplyReport, apply_plan
from hapvr.actions.plan import Plan, PlanRow, read_plan, write_plan
from hapvr.actions.preview import ApplyOptions, Left, Preview, preview_plan
from hapvr.actions.undo import undo_journal

__all__ = [
    "ApplyOptions",
    "ApplyReport",
    "Left",
    "Plan",
    "PlanRow",
    "Preview",
    "apply_plan",
    "preview_plan",
    "read_plan",
    "undo_journal",
    "write_plan",
]
