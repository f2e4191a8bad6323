"""A machine on which the operators' guide is followed, line by line, without systemd, Docker or root."""
