"""What the parent and its workers exchange: messages and arrays in shared memory."""
