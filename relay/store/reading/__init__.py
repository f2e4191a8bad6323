"""What people and programs read: a module for each kind of thing. What stands beside this room writes and decides."""
