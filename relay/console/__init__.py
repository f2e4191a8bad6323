"""What an admin does at a console: the commands of ``crcr`` that look at the service's database, and act on it."""
