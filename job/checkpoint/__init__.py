"""The checkpoint: what lies in it and beside it, whose it is, and the rows that it holds."""
