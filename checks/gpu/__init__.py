"""All that a GPU is wanted for, in the minutes for which it is lent: `python -m checks gpu`."""
