"""Every sentence that a human reads, and how outside text is made safe to stand in one. No I/O."""
