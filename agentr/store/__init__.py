"""Files of a run: written under a temporary name and renamed, so that what is there is whole."""
