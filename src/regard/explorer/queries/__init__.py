"""The queries of the page, each beside its answer: every module here is imported, and declares some by `query`."""
