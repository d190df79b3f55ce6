"""Bytes out, stamped bytes in: sockets, TLS, proxies and kernel arrival stamps under gevent."""
