"""The pure core: tickets, slots, scheduling and order. Standard library only; no process, thread, clock or file."""
