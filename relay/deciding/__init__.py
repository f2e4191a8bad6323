"""What follows from what: events in, effects out. Values and pure functions, no I/O, no clock."""
