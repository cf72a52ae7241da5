"""The configured model as a folder; the nano model and how it was made."""
