"""Drawn films, edited copies of videos with known ground truth, and benchmarks made of them."""
