"""Runs that go from host to host: send them to a server, and receive them there."""
