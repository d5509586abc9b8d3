"""Scans a dataset: one walk over what it holds and what pickling takes of it, nearest first, with a path to everything.

    roots ──► walk ──► kinds       what is known by its type: tensors, arrays, handles, locks, generators
                  ──► reduction    what pickling takes of anything else: plain pickle's way, and that of spec_pickle
                  ──► bulk         large containers: every item's type is looked at, a sample of the items is entered
                  ──► accounts     bytes and objects, by the attribute that holds them
    walk ──► travel                size and seconds of the pickle, from one trial with everything awkward left out

A walk and no pickler, since what cannot be pickled must not end it, and nesting must not exhaust the stack.
"""
