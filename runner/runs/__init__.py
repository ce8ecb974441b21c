"""Many runs: what makes a run this run, its life and its record, and who carries jobs out."""
