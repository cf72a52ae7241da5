"""An experiment, or what is left of it: submitting it again continues it.

ray job submit --working-dir . -- python -m ray_jobs.experiment configs/demo.yaml run.dir=/abs/path
"""

import sys

from ray_jobs.entry import main

if __name__ == "__main__":
    sys.exit(main(["run"], __doc__))
