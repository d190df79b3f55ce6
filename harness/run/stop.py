"""SIGTERM ends a headless run in order. I/O, under gevent."""

import signal

import gevent


def end_on_sigterm() -> None:
    """Call it in the main greenlet, headless: SIGTERM becomes the KeyboardInterrupt that Locust is ready for there.

    Locust waits for a headless shape before it installs its own handler, so that SIGTERM would kill it in mid-run.
    """
    main = gevent.getcurrent()
    gevent.signal_handler(signal.SIGTERM, lambda: gevent.kill(main, KeyboardInterrupt))
