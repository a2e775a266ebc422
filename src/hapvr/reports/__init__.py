"""Results as pages to look at and share: matches, and the duplicates of a library."""
