"""The checks: one file, one code, one page. ``stoker._tools.doctor.check`` says what belongs into a file."""
