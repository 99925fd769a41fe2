"""Answers that are made once for many readers, and kept while they are right."""
