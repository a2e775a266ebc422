"""Weak and strong views of clips for self-supervised training, a whole batch at a time, on GPU or CPU.

`plan` draws everything at random, `views` carries it out with `temporal` (maps of frames), `resample` (crop, resize,
paste, blur as matrix products), `randaugment` (tones and geometry), `sprites` (captions, emoji) and `extras`.
"""

from hapvr.training.augment.config import ViewConfig
from hapvr.training.augment.plan import Plan, draw_plan, format_plan
from hapvr.training.augment.views import Views, make_views

__all__ = ["Plan", "ViewConfig", "Views", "draw_plan", "format_plan", "make_views"]
