"""The web server: the pages of the site from the database, a JSON API beside them, feeds, badges and metrics."""
