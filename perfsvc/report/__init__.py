"""Rows and columns in; tables, pages, frames and files out."""
