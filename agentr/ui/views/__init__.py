"""What the pages show, as plain data. ``agentr.ui.api`` has the types of all answers."""
