"""``python -m env_servers``: see `serving.py`."""

import sys

from env_servers.serving import main

if __name__ == "__main__":
    sys.exit(main())
