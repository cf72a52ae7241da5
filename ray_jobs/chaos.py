"""A run that is broken on purpose, in every stage and part, and compared with an undisturbed one.

agentr chaos configs/smoke.yaml --address http://HEAD:8265 run.dir=/shared/chaos
"""

import sys

from ray_jobs.entry import main

if __name__ == "__main__":
    sys.exit(main(["chaos"], __doc__))
