"""The site: pages about the newest run, every series and every finding."""
