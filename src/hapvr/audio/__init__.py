"""Sound: decoding, fingerprints made of spectral peaks, and where two of them hold the same sound."""
