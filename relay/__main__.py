"""``python -m relay`` is the command ``crcr``."""

from relay.cli import main

if __name__ == "__main__":
    main()
