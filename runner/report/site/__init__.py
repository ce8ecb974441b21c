"""The website: the README, the pages of results and of docs, and two tables with filters, as files in a folder."""
