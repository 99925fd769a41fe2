"""What the pages of a site show, without building the site."""

from perfsvc.service.dashboard.build import outline, with_series


def site_of(store, last, now):
    """Return what the pages show about the newest ``last`` runs."""
    return with_series(store, outline(store, store.runs.list(last), now), None)
