"""A page and a REST API for a library: `hapvr serve`."""
