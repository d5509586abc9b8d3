"""Scripts to try stoker on. Each says in its docstring what to run and what to expect."""
