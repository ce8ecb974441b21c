"""From records to tables, figures, claims and the report. Reads records and configs; trains nothing."""
