"""WHO: which backends are told of upstream's events, and on what terms. Text in, values out, no I/O."""
