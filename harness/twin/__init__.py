"""A server in virtual time, fitted to what was measured of the real one, and the knee it predicts. Pure."""
