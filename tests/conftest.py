"""What every test may rely on."""

from __future__ import annotations

import signal

# A run that was started with nohup, or in the background of a script, ignores these, and so would every process that a
# test starts and means to interrupt.
for _number, _handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)
