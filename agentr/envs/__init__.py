"""The client of the environment servers, and the supervisors of the servers."""
