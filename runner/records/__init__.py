"""Records: the resolved config of a run, its identity, and what was measured, in a file each."""
