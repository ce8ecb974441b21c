"""Many runs: what makes a run this run, its record, how it is executed, and who carries jobs out."""
