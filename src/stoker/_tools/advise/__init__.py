"""``stoker advise``: one bounded run, all tools on it, and at most five edits."""
