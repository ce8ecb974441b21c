"""The papers, one package each: their items, the measures of their claims and their figures."""
