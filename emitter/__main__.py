"""The process of the command: `emitter`, or `python -m emitter`."""

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command with the arguments of the process, and return its exit status."""
    # While the command is loaded, Ctrl-C ends the process as it ends any other, without a traceback.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from emitter import cli

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
