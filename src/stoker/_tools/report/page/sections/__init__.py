"""The sections of a report about runs: one file each, with ``section(material) -> Section | None``. Pure."""
