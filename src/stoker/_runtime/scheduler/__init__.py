"""The pure core: tickets, slots, dispatch and order. It imports the standard library only, and uses no process, thread, clock or
file.
"""
