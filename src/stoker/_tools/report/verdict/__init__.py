"""What a run record comes down to: the verdict, its reasons, and what to change."""
