"""``num_workers="auto"``: observations of a running loader, the policy that decides, and how local ranks agree."""
