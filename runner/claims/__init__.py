"""Claims: their runs, the measured numbers, and the verdicts."""
