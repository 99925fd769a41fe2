"""Naming the commit that made a case slower."""
