"""Runs untrusted Python: isolated from the machine, bounded in time and memory, about 10 ms a call."""

from env_servers.sandbox.launch import SandboxUnavailable
from env_servers.sandbox.sandbox import Limits, Outcome, Sandbox, SandboxFailure, Status
from env_servers.sandbox.tool import PythonTool

__all__ = ["Limits", "Outcome", "PythonTool", "Sandbox", "SandboxFailure", "SandboxUnavailable", "Status"]
