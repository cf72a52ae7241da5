"""A whole run of a minute or two with the model that ships, to see whether a cluster is fit for a real one.

ray job submit --working-dir . -- python -m ray_jobs.smoke cluster=cpu_cluster run.dir=/abs/path
"""

import sys

from ray_jobs.entry import main

if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if not argument.endswith((".yaml", ".yml"))]
    sys.exit(main(["run"], __doc__, ["configs/smoke.yaml", *given]))
