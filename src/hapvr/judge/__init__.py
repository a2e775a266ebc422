"""Whether, where and how two videos match: evidence of a pair, and the verdict."""
