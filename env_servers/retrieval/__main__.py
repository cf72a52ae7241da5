"""``python -m env_servers.retrieval``: see `serving.py`."""

import sys

from env_servers.retrieval.serving import main

if __name__ == "__main__":
    sys.exit(main())
