"""Reading runs: the public interface to run directories. ``agentr.open`` opens one."""
