"""The command ``stoker``: one file per command, each imported when it is called."""
