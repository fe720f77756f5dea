"""Text generation: options, sampling, incremental detokenization and the loop."""
