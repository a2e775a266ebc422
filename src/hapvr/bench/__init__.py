"""What this machine does, and what that means for a collection of videos: `hapvr bench`."""
