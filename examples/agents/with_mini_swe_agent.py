# /// script
# dependencies = ["mini-swe-agent==2.4.6"]
# ///
"""mini-swe-agent: its own command, which repairs a small repository. What the task's tests say is the reward."""

import json
import os
import subprocess
import sys
from pathlib import Path

task = json.loads(Path(os.environ["AGENTR_TASK"]).read_text())
for name, text in task["files"].items():
    Path(name).write_text(text)
settings = {
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",  # else a call that is refused is asked ten times
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
mini = [str(Path(sys.executable).parent / "mini"), "-y", "--exit-immediately", "-m", "openai/any", "-t", task["ask"]]
subprocess.run(mini, env={**os.environ, **settings}, check=False)
tested = subprocess.run([sys.executable, "-c", task["test"]], check=False)
Path("reward.json").write_text(json.dumps(float(tested.returncode == 0)))
