"""What compilers made of a suite, without a GPU."""
