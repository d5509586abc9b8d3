"""``python -m stoker``: the command line."""

from stoker.cli.main import main

if __name__ == "__main__":
    main()
