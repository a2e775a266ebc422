"""Every system of the paper's Table 1 behind one interface: `fit(clips)`, `describe(features)`, `score(queries, ...)`.

All methods get the same region vectors of the same videos, learn from the same edited copies (`read_clips`) and are
measured by the same evaluation (`evaluate_method`). A method is one file here: a class with `@register` and a card, its
module's docstring, that says what the original is, what is kept and what is adapted. `docs/methods.md` has all cards.

It needs torch, numpy, safetensors and h5py alone: `python -m hapvr.methods` fits and measures on a bare GPU node.
"""

from hapvr.methods.base import TRIALS, Description, FitSettings, Method, Settings
from hapvr.methods.clips import Clips, make_clips, read_clips
from hapvr.methods.evaluation import MethodResult, evaluate_method
from hapvr.methods.fitting import FitRecord, fit_method, run_steps
from hapvr.methods.registry import (
    find_method,
    list_methods,
    load_method,
    make_method,
    open_method,
    parse_settings,
    read_card,
    register,
    save_method,
)
from hapvr.methods.trials import run_trials

__all__ = [
    "TRIALS",
    "Clips",
    "Description",
    "FitRecord",
    "FitSettings",
    "Method",
    "MethodResult",
    "Settings",
    "evaluate_method",
    "find_method",
    "fit_method",
    "list_methods",
    "load_method",
    "make_clips",
    "make_method",
    "open_method",
    "parse_settings",
    "read_card",
    "read_clips",
    "register",
    "run_steps",
    "run_trials",
    "save_method",
]
