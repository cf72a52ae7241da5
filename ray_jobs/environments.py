"""The environment servers of a configuration, until the job is stopped: for agents elsewhere, or several runs
(env.url).

ray job submit --working-dir . -- python -m ray_jobs.environments configs/demo.yaml run.dir=/abs/path
"""

import sys

from agentr.commands.serve import serve
from agentr.observe.progress import Reporter
from ray_jobs.entry import main

if __name__ == "__main__":
    sys.exit(main(lambda plan: serve(plan, Reporter()), __doc__))
