"""Run the command as `python -m emitter`."""

import sys

from emitter.cli import main

sys.exit(main())
