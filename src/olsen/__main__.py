"""``python -m olsen``: the command line."""

from .cli import main

raise SystemExit(main())
