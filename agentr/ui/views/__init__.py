"""What the pages show, as plain data. ``agentr/ui/web/src/api.ts`` has the types of all answers."""
