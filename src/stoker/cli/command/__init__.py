"""Parts of commands: options that several share, progress, output files, exit codes, and the facts of ``stoker env``."""
