"""Finding passages: embedded BM25, dense vectors, a web search or another server, with a cache that records and
replays.

A library that ``env_servers.searchqa`` uses in process (`build.py` makes a retriever from options), and a small service
of its own (``python -m env_servers.retrieval``, see `app.py`) for an index that several servers share.
"""
