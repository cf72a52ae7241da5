"""Whether a cluster has what a run needs: nothing is started on it.

ray job submit --working-dir . -- python -m ray_jobs.check configs/demo.yaml run.dir=/abs/path
"""

import sys

from ray_jobs.entry import main

if __name__ == "__main__":
    sys.exit(main(["run", "--dry-run", "--check-cluster"], __doc__))
