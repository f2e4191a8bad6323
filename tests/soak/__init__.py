"""A week of upstream's traffic in less than an hour, with faults of every kind, judged from outside at the end.

``python -m tests.soak`` (or ``make soak``) plays it: ``fleet`` says who the backends are and how they behave,
``traffic`` what people do upstream and when, ``weather`` what breaks and when, ``relays`` holds the real process, and
``soak`` runs all of it beside a simulated GitHub and hands the record to ``tests.promises``.

Time is squeezed by settings: the waits of the retry schedule, deadlines, sweeps. Leases and the timeouts of sockets
are what they are in production.
"""
