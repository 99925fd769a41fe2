"""Messages to people, through Apprise."""
