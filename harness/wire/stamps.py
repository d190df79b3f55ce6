"""When the kernel received what a read returns. Linux stamps TCP segments on request; elsewhere we stamp the read.

`SO_TIMESTAMPNS` makes `recvmsg` return, beside the data, the CLOCK_REALTIME instant at which the newest segment of that
data was received (TCP since Linux 4.14), however late the process gets round to reading it.
"""

import _socket
import socket
import struct
import sys

SO_TIMESTAMPNS = 35
ANCILLARY_BYTES = 64
"""Room for one control message with a timespec."""

timespec = struct.Struct("@qq").unpack
"""(seconds, nanoseconds) out of the control message's data."""


def ask_for_stamps(sock: "_socket.socket") -> bool:
    """Ask the kernel to stamp what arrives on this socket; False where it cannot."""
    if not sys.platform.startswith("linux") or struct.calcsize("@l") != 8:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True
