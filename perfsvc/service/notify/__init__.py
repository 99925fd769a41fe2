"""Telling people of a night: what is new, in words, delivered until it has arrived."""

from perfsvc.service.notify.notify import notify

__all__ = ["notify"]
