"""One round's policy, of its dataset.

ray job submit --working-dir . -- python -m ray_jobs.train configs/demo.yaml --round 1 run.dir=/abs/path
"""

import sys

from ray_jobs.entry import main

if __name__ == "__main__":
    sys.exit(main(["train"], __doc__))
