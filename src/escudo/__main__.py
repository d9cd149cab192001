"""Run the command line as ``python -m escudo``."""

from escudo.cli import main

if __name__ == "__main__":
    main()
