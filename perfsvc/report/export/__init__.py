"""Reports for programs: data frames, JSON, Markdown, JUnit and annotations."""
