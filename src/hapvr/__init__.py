"""Find videos by content: copies, edited copies, clips inside longer videos, other footage of the same incident."""

__version__ = "0.1.0"
