"""Worker processes and threads: how they are started, what they share, and what happens when one dies."""
