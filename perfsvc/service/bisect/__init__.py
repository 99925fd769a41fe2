"""Find the commit that moved a case."""
