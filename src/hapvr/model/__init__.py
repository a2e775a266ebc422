"""A model as people use it: a backbone, its whitening, a similarity network and a sampling rate, loaded by name.

`loading.py` loads it, `parts.py` reads the parts of its folder, `writing.py` writes folders, and `fetching.py` gets the
backbones that models do not carry.
"""

from hapvr.model.loading import (
    DEFAULT,
    Model,
    ModelInfo,
    get_model,
    is_calibrated,
    is_shipped,
    load,
    load_network,
    load_segments,
    read_judge,
    read_model_info,
)
from hapvr.model.parts import find_model_folder, list_model_names
from hapvr.model.writing import (
    join_model,
    make_trained_parts,
    read_base_parts,
    save_calibration,
    save_judge,
    save_model,
    save_rounding,
    save_symmetry,
)

__all__ = [
    "DEFAULT", "Model", "ModelInfo", "find_model_folder", "get_model", "is_calibrated", "is_shipped", "join_model",
    "list_model_names", "load", "load_network", "load_segments", "make_trained_parts", "read_base_parts",
    "read_judge", "read_model_info", "save_calibration", "save_judge", "save_model", "save_rounding",
    "save_symmetry",
]  # fmt: skip
