"""One round's dataset, of its trees.

ray job submit --working-dir . -- python -m ray_jobs.build configs/demo.yaml --round 1 run.dir=/abs/path
"""

import sys

from ray_jobs.entry import main

if __name__ == "__main__":
    sys.exit(main(["build"], __doc__))
