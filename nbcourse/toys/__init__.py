"""Problems small enough to know the truth: every outcome can be listed, so every mean is exact."""
