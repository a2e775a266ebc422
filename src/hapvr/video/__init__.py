"""From video files to sampled frames."""
