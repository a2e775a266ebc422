"""What training adds to the similarity network: a teacher's labels for frames, and batches over several processes."""

from hapvr.training.distributed import gather, rank, world_size
from hapvr.training.pseudo_labels import frame_pseudo_labels

__all__ = ["frame_pseudo_labels", "gather", "rank", "world_size"]
