"""One policy on the held-out tasks.

ray job submit --working-dir . -- python -m ray_jobs.evaluate configs/demo.yaml --round 1 run.dir=/abs/path
"""

import sys

from ray_jobs.entry import main

if __name__ == "__main__":
    sys.exit(main(["eval"], __doc__))
