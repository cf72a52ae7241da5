"""A coding agent's own command repairs a small repository, as with_mini_swe_agent.py does:
``with_coding_agent.py PATH``, where PATH ends in claude, codex or opencode."""

import json
import os
import subprocess
import sys
from pathlib import Path

task = json.loads(Path(os.environ["AGENTR_TASK"]).read_text())
for name, text in task["files"].items():
    Path(name).write_text(text)
command, url = Path(sys.argv[1]), os.environ["OPENAI_BASE_URL"]
match command.name:
    case "claude":
        arguments = ["-p", task["ask"], "--session-id", "00000000-0000-4000-8000-000000000000"]
        arguments += ["--model", "any", "--dangerously-skip-permissions", "--allowed-tools", "Bash"]
        settings = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
    case "codex":
        provider = f'{{name="agentr", base_url="{url}", env_key="OPENAI_API_KEY", wire_api="responses"}}'
        arguments = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "any"]
        arguments += ["-c", f"model_providers.agentr={provider}", "-c", "model_provider=agentr"]
        arguments += ["-c", "web_search=disabled", "--disable", "multi_agent", task["ask"]]
        settings = {}
    case "opencode":
        provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": url, "apiKey": "{env:OPENAI_API_KEY}"}}
        model = {"any": {"limit": {"context": 200_000, "output": 4_096}}}
        content = {"provider": {"agentr": {**provider, "models": model}}, "small_model": "agentr/any"}
        arguments = ["run", "-m", "agentr/any", task["ask"]]
        settings = {"OPENCODE_CONFIG_CONTENT": json.dumps(content), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    case other:
        raise SystemExit(f"no coding agent {other!r}")
subprocess.run([command, *arguments], env={**os.environ, **settings}, stdin=subprocess.DEVNULL, check=False)
tested = subprocess.run([sys.executable, "-c", task["test"]], check=False)
Path("reward.json").write_text(json.dumps(float(tested.returncode == 0)))
