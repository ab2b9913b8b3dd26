"""The INT8 engine: observe once, derive every record from the statistics, lower the record to a runnable model."""
