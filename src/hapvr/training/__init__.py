"""Training of the similarity network on unlabelled videos: clips, views, a teacher's labels, the loop, a feature bank.

`train` is a whole run from settings (`load_config`), resumable, in one process or many, and `train_stages` several that
follow on each other; with `backbone.rate` the backbone learns too (`hapvr.training.whole`). `make_bank` and
`train_from_bank` are many runs from views that are extracted once. It needs torch, numpy, safetensors and Pillow, and
no decoder: `python -m hapvr.training tiny data.frames=packed` trains on a bare GPU node.
"""

from hapvr.training.augment import ViewConfig, Views, make_views
from hapvr.training.bank import Bank, BankSource, make_bank
from hapvr.training.camera import Camera
from hapvr.training.clips import ClipSet
from hapvr.training.config import TrainConfig
from hapvr.training.distributed import gather, rank, world_size
from hapvr.training.encoder import Encoder, build_teacher
from hapvr.training.pseudo_labels import make_pseudo_labels
from hapvr.training.recipe_files import list_recipes, load_config, load_stages
from hapvr.training.run import Trained, save_trained, train, train_from_bank, train_stages
from hapvr.training.run_parts import build_encoder, build_network, load_clips
from hapvr.training.sources import ClipSource
from hapvr.training.step import Batch, compute_step_losses, find_shared_content
from hapvr.training.trainer import fit
from hapvr.training.validation import ValidationSet, load_validation_set

__all__ = [
    "Bank",
    "BankSource",
    "Batch",
    "Camera",
    "ClipSet",
    "ClipSource",
    "Encoder",
    "TrainConfig",
    "Trained",
    "ValidationSet",
    "ViewConfig",
    "Views",
    "build_encoder",
    "build_network",
    "build_teacher",
    "compute_step_losses",
    "find_shared_content",
    "fit",
    "gather",
    "list_recipes",
    "load_clips",
    "load_config",
    "load_stages",
    "load_validation_set",
    "make_bank",
    "make_pseudo_labels",
    "make_views",
    "rank",
    "save_trained",
    "train",
    "train_from_bank",
    "train_stages",
    "world_size",
]
