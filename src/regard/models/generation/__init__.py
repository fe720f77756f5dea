"""Text generation: the loop over tokens, sampling, incremental detokenization."""
