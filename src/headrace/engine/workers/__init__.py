"""Workers: who runs tickets. Every kind answers the same four calls.

    open(program)           start
    submit(ticket)          take a ticket; False when everybody is busy
    wait(timeout)           the replies that have come, at least one unless the time is up
    close()                 stop, leave nothing behind

A ticket is a `Ticket`; a reply is a `Reply`. What a reply carries is either the outputs themselves, or a `Packed`: a
slot that holds them, which the reader opens when it needs them.
"""
