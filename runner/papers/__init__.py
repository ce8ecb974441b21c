"""The papers: what each consists of, how its claims are measured and its figures drawn. One package each."""
